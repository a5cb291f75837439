// A thread's share of phase 1 and phase 2, for the kernel of any instruction set: internal linkage.
//
// A Kernel has: Simd, Element, Weights (softmax.h), start_rows(rows) before the products of that many rows, stop() at the
// end, pack, scores and values (see VectorKernel in products.h). Up to kFewRows rows, 0 for none, it takes in one go, in
// reduce() (see AmxKernel).
#pragma once

#include <cstring>

#include "attention/call.h"
#include "attention/softmax.h"

namespace octavo {
namespace {

// Copies the unit that is quarter `quarter` of a tile.
template <class Element>
inline void gather_unit(const Element* k_unit, const Element* v_unit, int dim, int quarter, Element* k, Element* v) {
  if constexpr (sizeof(Element) == 1) {  // the scales of 8 tokens, behind the unit's codes and behind the tile's
    std::memcpy(k + kKvTile * dim + quarter * 32, k_unit + 8 * dim, 32);
    std::memcpy(v + kKvTile * dim + quarter * 32, v_unit + 8 * dim, 32);
  }
  k += (quarter / 2) * dim * 16;
  const int half = quarter % 2;
  for (int pair = 0; pair < dim / 2; ++pair, k += 32, k_unit += 16) {
    if constexpr (sizeof(Element) <= 2) {
      std::memcpy(k + half * 16, k_unit, 16 * sizeof(Element));
    } else {
      std::memcpy(k + half * 8, k_unit, 32);
      std::memcpy(k + 16 + half * 8, k_unit + 8, 32);
    }
  }
  v += quarter * 128;
  for (int d = 0; d < dim; d += 16, v += 512, v_unit += 128) std::memcpy(v, v_unit, 128 * sizeof(Element));
}

template <class Element>
inline void clear_unit(int dim, int quarter, Element* v) {
  v += quarter * 128;
  for (int d = 0; d < dim; d += 16, v += 512) std::memset(v, 0, 128 * sizeof(Element));
}

// Walks the query rows of a task, [T, heads * head_dim] with row stride `stride`.
struct RowCursor {
  RowCursor(const AttentionCall& call, const AttentionTask& task, int row, int64_t stride)
      : group(call.group), head_dim(call.head_dim), next_token(stride - int64_t{call.group - 1} * call.head_dim) {
    const int r = task.first_row + row, token = r / group;
    head = r - token * group;
    offset = (call.query_start_loc[task.seq] + token) * stride + int64_t{task.kv_head * group + head} * head_dim;
  }
  void advance() {
    const bool wraps = ++head == group;
    offset += wraps ? next_token : head_dim;
    if (wraps) head = 0;
  }

  const int group, head_dim;
  const int64_t next_token;
  int head;
  int64_t offset;  // of the row, in floats
};

// Where a split task keeps its result over one partition.
inline RowState partial_block(const AttentionCall& call, const AttentionTask& task, int partition) {
  const int64_t size = int64_t{task.num_rows} * (call.padded_dim + 2);
  float* block = call.partials + task.partial + (partition - task.first_partition) * size;
  return {block, block + task.num_rows, block + 2 * task.num_rows};
}

template <class Kernel>
class Worker {
  using Simd = typename Kernel::Simd;
  using Element = typename Kernel::Element;

 public:
  explicit Worker(const AttentionCall& call) : c_(call) {
    q_ = c_.scratch + c_.layout.q;
    scores_ = c_.scratch + c_.layout.scores;
    state_ = {c_.scratch + c_.layout.max, c_.scratch + c_.layout.sum, c_.scratch + c_.layout.state};
  }

  void run() {
    const FlushTiny flush;
    for (int f = c_.first_fragment; f < c_.end_fragment; ++f) run_fragment(f);
    kernel_.stop();
  }

 private:
  void run_fragment(int f) {
    const AttentionFragment& fragment = c_.fragments[f];
    const AttentionTask& task = c_.tasks[fragment.task];
    pack_rows(task);
    for (int partition = fragment.first_partition; partition < fragment.end_partition; ++partition) {
      const TileRange range = tiles_in_sight(task, partition);
      find_tiles(task, partition, range);
      find_tiles_ahead(f, partition, range);
      for (int row = 0; row < task.num_rows; row += kTileRows)
        run_rows(task, fragment, partition, row, task.num_rows - row < kTileRows ? task.num_rows - row : kTileRows);
    }
    if (task.partial >= 0) return;
    RowCursor cursor(c_, task, 0, c_.ldo);
    for (int row = 0; row < task.num_rows; ++row, cursor.advance())
      finish_row<Simd>(state_.out + int64_t{row} * c_.padded_dim, state_.sum[row], c_.out + cursor.offset, c_.head_dim);
  }

  int position(const AttentionTask& task, int row) const {
    const int tokens = c_.query_start_loc[task.seq + 1] - c_.query_start_loc[task.seq];
    return c_.seq_lens[task.seq] - tokens + (task.first_row + row) / c_.group;
  }
  int window_begin(int position) const {
    return c_.window > 0 && position >= c_.window ? position - c_.window + 1 : 0;
  }

  void pack_rows(const AttentionTask& task) {
    const float scale = c_.scale * 1.44269504f;
    RowCursor cursor(c_, task, 0, c_.ldq);
    for (int row = 0; row < task.num_rows; ++row, cursor.advance())
      Kernel::pack(c_.q + cursor.offset, c_.head_dim, c_.padded_dim, scale, q_, row);
  }

  // Tiles [lo, hi) of a partition.
  struct TileRange {
    int lo, hi;
  };

  // Those that rows [row, row + rows) of a task see; none where lo >= hi.
  TileRange tiles_in_sight(const AttentionTask& task, int partition, int row, int rows) const {
    const int base = partition * kPartition;
    const int lo = window_begin(position(task, row)) - base, hi = position(task, row + rows - 1) + 1 - base;
    return {lo < 0 ? 0 : lo / kKvTile, hi > kPartition ? kPartitionTiles : (hi + kKvTile - 1) / kKvTile};
  }
  TileRange tiles_in_sight(const AttentionTask& task, int partition) const {
    return tiles_in_sight(task, partition, 0, task.num_rows);
  }

  void find_tiles(const AttentionTask& task, int partition, TileRange range) {
    for (int tile = range.lo; tile < range.hi; ++tile) {
      if (c_.unit != kKvTile) {
        gather_tile(task, partition, tile);
        continue;
      }
      tiles_.k[tile] = k_tile(task, partition, tile);
      tiles_.v[tile] = tiles_.k[tile] + c_.half_bytes;
    }
  }

  // What is read after tiles `range` of a partition. Where that is nothing, or must be gathered first, it is a tile of
  // these: no prefetch then fetches what nobody wants.
  void find_tiles_ahead(int f, int partition, TileRange range) {
    const int tiles = range.hi - range.lo;
    if (tiles <= 0) return;
    const char** const next = tiles_.v + range.hi;
    for (int i = 0; i < kTilesAhead; ++i) next[i] = next[-1];
    find_next_tiles(f, partition, next);
    for (int i = 0; i < kTilesAhead; ++i)
      tiles_.k[range.hi + i] = i < tiles ? tiles_.v[range.lo + i] : next[i - tiles];
  }

  // The first kTilesAhead tiles of the partition that this thread does next: of K, then of V.
  void find_next_tiles(int f, int partition, const char** next) const {
    if (c_.unit != kKvTile) return;
    const bool goes_on = ++partition < c_.fragments[f].end_partition;
    if (!goes_on && ++f == c_.end_fragment) return;
    if (!goes_on) partition = c_.fragments[f].first_partition;
    const AttentionTask& task = c_.tasks[c_.fragments[f].task];
    const TileRange range = tiles_in_sight(task, partition);
    const int tiles = range.hi - range.lo;
    for (int i = 0; i < kTilesAhead && i < 2 * tiles; ++i)
      next[i] = i < tiles ? k_tile(task, partition, range.lo + i)
                          : k_tile(task, partition, range.lo + i - tiles) + c_.half_bytes;
  }

  // Of a cache whose blocks hold whole tiles.
  const char* k_tile(const AttentionTask& task, int partition, int tile) const {
    const int at = partition * kPartition + tile * kKvTile, logical = at / c_.block_size;
    return c_.place + c_.block_table[task.seq * c_.table_stride + logical] * c_.block_bytes +
           task.kv_head * c_.head_bytes + (at - logical * c_.block_size) / kKvTile * c_.unit_bytes;
  }

  void gather_tile(const AttentionTask& task, int partition, int tile) {
    const int32_t* table = c_.block_table + task.seq * c_.table_stride;
    const int at = partition * kPartition + tile * kKvTile, seq_len = c_.seq_lens[task.seq];
    const int64_t tile_bytes = kKvTile / c_.unit * c_.unit_bytes;
    Element* k = reinterpret_cast<Element*>(reinterpret_cast<char*>(c_.scratch + c_.layout.k) + tile * tile_bytes);
    Element* v = reinterpret_cast<Element*>(reinterpret_cast<char*>(c_.scratch + c_.layout.v) + tile * tile_bytes);
    tiles_.k[tile] = reinterpret_cast<const char*>(k);
    tiles_.v[tile] = reinterpret_cast<const char*>(v);
    for (int quarter = 0; quarter < 4; ++quarter) {
      const int first = at + 8 * quarter, logical = first / c_.block_size;
      if (first >= seq_len || table[logical] < 0) {
        clear_unit<Element>(c_.padded_dim, quarter, v);
        continue;
      }
      const char* unit = c_.place + table[logical] * c_.block_bytes + task.kv_head * c_.head_bytes +
                         (first - logical * c_.block_size) / 8 * c_.unit_bytes;
      gather_unit(reinterpret_cast<const Element*>(unit), reinterpret_cast<const Element*>(unit + c_.half_bytes),
                  c_.padded_dim, quarter, k, v);
    }
  }

  // Rows [row, row + rows) of a task over one partition.
  void run_rows(const AttentionTask& task, const AttentionFragment& fragment, int partition, int row, int rows) {
    const int base = partition * kPartition;
    auto [lo, hi] = tiles_in_sight(task, partition, row, rows);
    const bool split = task.partial >= 0, first = partition == fragment.first_partition;
    if (lo >= hi) {
      if (!split && !first) return;  // merging nothing changes nothing
      lo = hi = 0;
    }
    if (split) {
      reduce_rows(task, base, row, rows, lo, hi, rows_of(partial_block(c_, task, partition), row));
    } else if (first) {
      reduce_rows(task, base, row, rows, lo, hi, rows_of(state_, row));
    } else {
      alignas(64) float max[kTileRows], sum[kTileRows];
      const RowState part{max, sum, c_.scratch + c_.layout.partial};
      reduce_rows(task, base, row, rows, lo, hi, part);
      merge_rows<Simd>(rows_of(state_, row), part, rows, c_.padded_dim);
    }
  }

  // The result of rows over tiles [lo, hi) of the partition that starts at position `base`.
  void reduce_rows(const AttentionTask& task, int base, int row, int rows, int lo, int hi, const RowState& result) {
    kernel_.start_rows(rows);
    Sight sights[kTileRows];
    int last = position(task, row) - base, head = (task.first_row + row) % c_.group;
    for (int r = 0; r < rows; ++r, ++head) {
      if (head == c_.group) head = 0, ++last;
      sights[r] = sight_of(last, base, lo, hi);
    }
    if constexpr (Kernel::kFewRows > 0) {
      if (rows <= Kernel::kFewRows)
        return kernel_.reduce(q_, row, rows, c_.padded_dim, tiles_, lo, hi, sights, scores_, result);
    }
    kernel_.scores(q_, row, rows, c_.padded_dim, tiles_, lo, hi, scores_);
    float max = row_max<Simd>(scores_, sights[0]);
    for (int r = 0; r < rows; ++r) {
      // The next row's largest score first: its latency hides behind this row's weights.
      const float next_max = r + 1 < rows ? row_max<Simd>(scores_ + (r + 1) * kScoreStride, sights[r + 1]) : max;
      result.max[r] = max;
      result.sum[r] =
          weigh_row<typename Kernel::Weights>(scores_ + r * kScoreStride, lo * kKvTile, hi * kKvTile, sights[r], max);
      max = next_max;
    }
    kernel_.values(scores_, rows, c_.padded_dim, tiles_.v, lo, hi, result.out);
  }

  // What the row at position base + last sees of tiles [lo, hi) of the partition at `base`.
  Sight sight_of(int last, int base, int lo, int hi) const {
    const int begin = window_begin(last + base) - base;
    return {begin < lo * kKvTile ? lo * kKvTile : begin, last >= hi * kKvTile ? hi * kKvTile : last + 1};
  }

  RowState rows_of(const RowState& state, int row) const {
    return {state.max + row, state.sum + row, state.out + int64_t{row} * c_.padded_dim};
  }

  const AttentionCall& c_;
  Kernel kernel_;
  PartitionTiles tiles_;
  float *q_, *scores_;
  RowState state_;
};

// This thread's share of the rows of split tasks.
template <class Simd>
inline void merge_split_tasks(const AttentionCall& c) {
  const FlushTiny flush;
  int64_t total = 0;
  for (int i = 0; i < c.num_split_tasks; ++i) total += c.tasks[c.split_tasks[i]].num_rows;
  const int64_t begin = total * c.thread / c.num_threads, end = total * (c.thread + 1) / c.num_threads;
  const RowState state{c.scratch + c.layout.max, c.scratch + c.layout.sum, c.scratch + c.layout.state};
  int64_t at = 0;  // number of the task's first row among all
  for (int i = 0; i < c.num_split_tasks; at += c.tasks[c.split_tasks[i]].num_rows, ++i) {
    const AttentionTask& task = c.tasks[c.split_tasks[i]];
    const int first = static_cast<int>(begin > at ? begin - at : 0);
    const int rows = static_cast<int>(end - at < task.num_rows ? end - at : task.num_rows) - first;
    if (rows <= 0) continue;
    for (int p = task.first_partition; p < task.first_partition + task.num_partitions; ++p) {
      RowState part = partial_block(c, task, p);
      part = {part.max + first, part.sum + first, part.out + int64_t{first} * c.padded_dim};
      if (p > task.first_partition) {
        merge_rows<Simd>(state, part, rows, c.padded_dim);
        continue;
      }
      std::memcpy(state.max, part.max, rows * sizeof(float));
      std::memcpy(state.sum, part.sum, rows * sizeof(float));
      std::memcpy(state.out, part.out, int64_t{rows} * c.padded_dim * sizeof(float));
    }
    RowCursor cursor(c, task, first, c.ldo);
    for (int r = 0; r < rows; ++r, cursor.advance())
      finish_row<Simd>(state.out + int64_t{r} * c.padded_dim, state.sum[r], c.out + cursor.offset, c.head_dim);
  }
}

}  // namespace
}  // namespace octavo
