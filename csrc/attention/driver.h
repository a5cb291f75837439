// A thread's share of phase 1 and phase 2, for the kernel of any instruction set: internal linkage.
//
// A Kernel has: Simd, Element, Weights (softmax.h), start_rows(rows) before the products of that many rows, stop() at the
// end, pack, scores and values (see VectorKernel in products.h).
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
    for (int f = c_.first_fragment; f < c_.end_fragment; ++f) run_fragment(c_.fragments[f]);
    kernel_.stop();
  }

 private:
  void run_fragment(const AttentionFragment& fragment) {
    const AttentionTask& task = c_.tasks[fragment.task];
    start_position_ =
        c_.seq_lens[task.seq] - (c_.query_start_loc[task.seq + 1] - c_.query_start_loc[task.seq]);
    pack_rows(task);
    for (int partition = fragment.first_partition; partition < fragment.end_partition; ++partition) {
      find_tiles(task, partition);
      for (int row = 0; row < task.num_rows; row += kTileRows)
        run_rows(task, fragment, partition, row, task.num_rows - row < kTileRows ? task.num_rows - row : kTileRows);
    }
    if (task.partial >= 0) return;
    RowCursor cursor(c_, task, 0, c_.ldo);
    for (int row = 0; row < task.num_rows; ++row, cursor.advance())
      finish_row<Simd>(state_.out + int64_t{row} * c_.padded_dim, state_.sum[row], c_.out + cursor.offset, c_.head_dim);
  }

  int position(const AttentionTask& task, int row) const { return start_position_ + (task.first_row + row) / c_.group; }
  int window_begin(int position) const {
    return c_.window > 0 && position >= c_.window ? position - c_.window + 1 : 0;
  }

  void pack_rows(const AttentionTask& task) {
    const float scale = c_.scale * 1.44269504f;
    RowCursor cursor(c_, task, 0, c_.ldq);
    for (int row = 0; row < task.num_rows; ++row, cursor.advance())
      Kernel::pack(c_.q + cursor.offset, c_.head_dim, c_.padded_dim, scale, q_, row);
  }

  void find_tiles(const AttentionTask& task, int partition) {
    const int base = partition * kPartition;
    int lo = window_begin(position(task, 0)) - base, hi = position(task, task.num_rows - 1) + 1 - base;
    if (lo < 0) lo = 0;
    if (hi > kPartition) hi = kPartition;
    const int32_t* table = c_.block_table + task.seq * c_.table_stride;
    const int64_t head = task.kv_head * c_.head_bytes;
    for (int tile = lo / kKvTile; tile * kKvTile < hi; ++tile) {
      if (c_.unit != kKvTile) {
        gather_tile(table, head, base + tile * kKvTile, tile, c_.seq_lens[task.seq]);
        continue;
      }
      const int at = base + tile * kKvTile, logical = at / c_.block_size;
      const char* k = c_.place + table[logical] * c_.block_bytes + head +
                      (at - logical * c_.block_size) / kKvTile * c_.unit_bytes;
      tiles_.k[tile] = k;
      tiles_.v[tile] = k + c_.half_bytes;
    }
  }

  void gather_tile(const int32_t* table, int64_t head, int at, int tile, int seq_len) {
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
      const char* unit = c_.place + table[logical] * c_.block_bytes + head +
                         (first - logical * c_.block_size) / 8 * c_.unit_bytes;
      gather_unit(reinterpret_cast<const Element*>(unit), reinterpret_cast<const Element*>(unit + c_.half_bytes),
                  c_.padded_dim, quarter, k, v);
    }
  }

  // Rows [row, row + rows) of a task over one partition.
  void run_rows(const AttentionTask& task, const AttentionFragment& fragment, int partition, int row, int rows) {
    const int base = partition * kPartition;
    int lo = window_begin(position(task, row)) - base, hi = position(task, row + rows - 1) + 1 - base;
    lo = lo < 0 ? 0 : lo / kKvTile;
    hi = hi > kPartition ? kPartitionTiles : (hi + kKvTile - 1) / kKvTile;
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
    kernel_.scores(q_, row, rows, c_.padded_dim, tiles_, lo, hi, scores_);
    int last = position(task, row) - base, head = (task.first_row + row) % c_.group;
    Sight sight = sight_of(last, base, lo, hi);
    float max = row_max<Simd>(scores_, sight);
    for (int r = 0; r < rows; ++r) {
      // The next row's largest score first: its latency hides behind this row's weights.
      if (++head == c_.group) head = 0, ++last;
      const Sight next_sight = sight_of(last, base, lo, hi);
      const float next_max = r + 1 < rows ? row_max<Simd>(scores_ + (r + 1) * kScoreStride, next_sight) : max;
      result.max[r] = max;
      result.sum[r] =
          weigh_row<typename Kernel::Weights>(scores_ + r * kScoreStride, lo * kKvTile, hi * kKvTile, sight, max);
      sight = next_sight;
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
  int start_position_ = 0;
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
