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

// The tiles of K and V of one partition: in the cache, or gathered from 8-token units.
struct PartitionTiles {
  const char* k[kPartitionTiles];
  const char* v[kPartitionTiles];
};

// Copies the unit that is quarter `quarter` of a tile.
template <class Element>
inline void gather_unit(const Element* k_unit, const Element* v_unit, int dim, int quarter, Element* k, Element* v) {
  k += (quarter / 2) * dim * 16;
  const int half = quarter % 2;
  for (int pair = 0; pair < dim / 2; ++pair, k += 32, k_unit += 16) {
    if constexpr (sizeof(Element) == 2) {
      std::memcpy(k + half * 16, k_unit, 32);
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

template <class Kernel>
class Worker {
  using Simd = typename Kernel::Simd;
  using Element = typename Kernel::Element;

 public:
  explicit Worker(const AttentionCall& call) : c_(call) {
    q_ = c_.scratch + c_.layout.q;
    state_ = c_.scratch + c_.layout.state;
    max_ = c_.scratch + c_.layout.max;
    sum_ = c_.scratch + c_.layout.sum;
    scores_ = c_.scratch + c_.layout.scores;
    partial_ = c_.scratch + c_.layout.partial;
  }

  void run() {
    for (int f = c_.first_fragment; f < c_.end_fragment; ++f) run_fragment(c_.fragments[f]);
    kernel_.stop();
  }

 private:
  void run_fragment(const AttentionFragment& fragment) {
    const AttentionTask& task = c_.tasks[fragment.task];
    const int first_token = c_.query_start_loc[task.seq], end_token = c_.query_start_loc[task.seq + 1];
    start_position_ = c_.seq_lens[task.seq] - (end_token - first_token);
    pack_rows(task, first_token);
    for (int partition = fragment.first_partition; partition < fragment.end_partition; ++partition) {
      find_tiles(task, partition);
      for (int row = 0; row < task.num_rows; row += kTileRows)
        run_rows(task, fragment, partition, row, task.num_rows - row < kTileRows ? task.num_rows - row : kTileRows);
    }
    if (task.partial >= 0) return;
    for (int row = 0; row < task.num_rows; ++row)
      finish_row<Simd>(state_ + int64_t{row} * c_.padded_dim, sum_[row], out_row(task, row), c_.head_dim);
  }

  int position(const AttentionTask& task, int row) const { return start_position_ + (task.first_row + row) / c_.group; }
  int window_begin(int position) const {
    return c_.window > 0 && position >= c_.window ? position - c_.window + 1 : 0;
  }

  float* out_row(const AttentionTask& task, int row) const {
    const int r = task.first_row + row;
    return c_.out + (c_.query_start_loc[task.seq] + r / c_.group) * c_.ldo +
           int64_t{task.kv_head * c_.group + r % c_.group} * c_.head_dim;
  }

  void pack_rows(const AttentionTask& task, int first_token) {
    const float scale = c_.scale * 1.44269504f;
    for (int row = 0; row < task.num_rows; ++row) {
      const int r = task.first_row + row;
      const float* x = c_.q + (first_token + r / c_.group) * c_.ldq +
                       int64_t{task.kv_head * c_.group + r % c_.group} * c_.head_dim;
      Kernel::pack(x, c_.head_dim, c_.padded_dim, scale, q_, row);
    }
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
    Element* k = reinterpret_cast<Element*>(c_.scratch + c_.layout.k) + int64_t{tile} * kKvTile * c_.padded_dim;
    Element* v = reinterpret_cast<Element*>(c_.scratch + c_.layout.v) + int64_t{tile} * kKvTile * c_.padded_dim;
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
    const int base = partition * kPartition, dim = c_.padded_dim;
    int lo = window_begin(position(task, row)) - base, hi = position(task, row + rows - 1) + 1 - base;
    lo = lo < 0 ? 0 : lo / kKvTile;
    hi = hi > kPartition ? kPartitionTiles : (hi + kKvTile - 1) / kKvTile;
    const bool split = task.partial >= 0, first = partition == fragment.first_partition;
    if (lo >= hi) {
      if (!split && !first) return;  // merging nothing changes nothing
      lo = hi = 0;
    }
    float *max = max_ + row, *sum = sum_ + row, *out = state_ + int64_t{row} * dim;
    float part_max[kTileRows], part_sum[kTileRows];
    if (split) {
      float* block = c_.partials + task.partial +
                     int64_t{partition - task.first_partition} * task.num_rows * (dim + 2);
      max = block + row;
      sum = block + task.num_rows + row;
      out = block + 2 * task.num_rows + int64_t{row} * dim;
    } else if (!first) {
      max = part_max;
      sum = part_sum;
      out = partial_;
    }
    kernel_.start_rows(rows);
    kernel_.scores(q_, row, rows, dim, tiles_.k, lo, hi, scores_);
    for (int r = 0; r < rows; ++r) {
      const int last = position(task, row + r);
      const RowStats stats = softmax_row<typename Kernel::Weights>(
          scores_ + r * kScoreStride, lo * kKvTile, hi * kKvTile, window_begin(last) - base, last + 1 - base);
      max[r] = stats.max;
      sum[r] = stats.sum;
    }
    kernel_.values(scores_, rows, dim, tiles_.v, lo, hi, out);
    if (split || first) return;
    for (int r = 0; r < rows; ++r) {
      RowStats stats{max_[row + r], sum_[row + r]};
      merge_row<Simd>(state_ + int64_t{row + r} * dim, stats, partial_ + r * dim, {part_max[r], part_sum[r]}, dim);
      max_[row + r] = stats.max;
      sum_[row + r] = stats.sum;
    }
  }

  const AttentionCall& c_;
  Kernel kernel_;
  PartitionTiles tiles_;
  int start_position_ = 0;
  float *q_, *state_, *max_, *sum_, *scores_, *partial_;
};

// This thread's share of the rows of split tasks.
template <class Simd>
inline void merge_split_tasks(const AttentionCall& c) {
  int64_t total = 0;
  for (int i = 0; i < c.num_split_tasks; ++i) total += c.tasks[c.split_tasks[i]].num_rows;
  const int64_t begin = total * c.thread / c.num_threads, end = total * (c.thread + 1) / c.num_threads;
  float* state = c.scratch + c.layout.state;
  int64_t at = 0;
  for (int i = 0; i < c.num_split_tasks; ++i) {
    const AttentionTask& task = c.tasks[c.split_tasks[i]];
    for (int row = 0; row < task.num_rows; ++row, ++at) {
      if (at < begin || at >= end) continue;
      RowStats stats{};
      for (int p = 0; p < task.num_partitions; ++p) {
        const float* block = c.partials + task.partial + int64_t{p} * task.num_rows * (c.padded_dim + 2);
        const RowStats part{block[row], block[task.num_rows + row]};
        const float* sums = block + 2 * task.num_rows + int64_t{row} * c.padded_dim;
        if (p == 0) {
          std::memcpy(state, sums, c.padded_dim * sizeof(float));
          stats = part;
        } else {
          merge_row<Simd>(state, stats, sums, part, c.padded_dim);
        }
      }
      const int r = task.first_row + row;
      float* out = c.out + (c.query_start_loc[task.seq] + r / c.group) * c.ldo +
                   int64_t{task.kv_head * c.group + r % c.group} * c.head_dim;
      finish_row<Simd>(state, stats.sum, out, c.head_dim);
    }
  }
}

}  // namespace
}  // namespace octavo
