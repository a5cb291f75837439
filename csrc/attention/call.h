// What the kernels of every instruction set read: plain data, so that no code is shared between differently compiled files.
#pragma once

#include <cstdint>

#include "attention/kv_cache.h"

namespace octavo {

constexpr int kPartition = 512;  // absolute positions that are reduced on their own, then merged in ascending order
constexpr int kPartitionTiles = kPartition / kKvTile;
constexpr int kTaskRows = 128;   // most query rows of a task; a query row is one query head of one token
constexpr int kTileRows = 32;    // rows that go through a partition together
constexpr int kScoreStride = kPartition + 16;  // floats between score rows: not a power of two, for the L1 sets

// Query rows [first_row, first_row + num_rows) of one KV head of one sequence. Row r is token r / group, head r % group.
struct AttentionTask {
  int32_t seq, kv_head, first_row, num_rows;
  int32_t first_partition, num_partitions;  // those that any of its rows sees
  int64_t partial;  // where a split task keeps its partitions' results, in floats; -1 for a task that one thread does
};

// The part of a task that one thread does: partitions [first, end), absolute.
struct AttentionFragment {
  int32_t task, first_partition, end_partition;
};

// Every thread's working memory, in floats from the thread's base. Row strides are the padded head_dim where not said.
struct AttentionScratch {
  int64_t q;        // [kTaskRows] scaled query rows, as the kernel packs them
  int64_t state;    // [kTaskRows] weighted sums of V so far
  int64_t max;      // [kTaskRows] largest score so far, in powers of two
  int64_t sum;      // [kTaskRows] sum of weights so far
  int64_t scores;   // [kTileRows][kScoreStride] scores, then weights
  int64_t partial;  // [kTileRows] weighted sums of V of one partition
  int64_t k, v;     // gathered tiles of a partition; unused where blocks hold whole tiles
  int64_t total;
};

// The tiles of K and V of one partition: in the cache, or gathered from 8-token units. Behind the last ones are those that
// are read next, to be prefetched: behind K those of V and then of the next partition, behind V the latter.
constexpr int kTilesAhead = 8;
struct PartitionTiles {
  const char* k[kPartitionTiles + kTilesAhead];
  const char* v[kPartitionTiles + kTilesAhead];
};

struct AttentionCall {
  const int32_t* query_start_loc;
  const int32_t* seq_lens;
  const int32_t* block_table;
  int64_t table_stride;
  int window, heads, kv_heads, group, head_dim, padded_dim;

  const AttentionTask* tasks;
  const AttentionFragment* fragments;
  int32_t first_fragment, end_fragment;  // of this call
  const int32_t* split_tasks;
  int32_t num_split_tasks;
  int thread, num_threads;

  char* place;  // the layer's place in block 0
  int64_t block_bytes, half_bytes, head_bytes, unit_bytes;
  int block_size, unit;

  const float* q;
  int64_t ldq;
  float* out;
  int64_t ldo;
  float scale;
  float* partials;
  float* scratch;
  AttentionScratch layout;
};

// Per instruction set and cache type: AVX2 and AVX512 take any, AVX512-BF16 bf16, AMX bf16 and, by a kernel of its own,
// int8. Phase 1 does the tasks; phase 2, after a barrier, merges the split ones.
void attention_phase1_avx2(const AttentionCall& call, KvType type);
void attention_phase1_avx512(const AttentionCall& call, KvType type);
void attention_phase1_avx512bf16(const AttentionCall& call);
void attention_phase1_amx(const AttentionCall& call);
void attention_phase1_int8_amx(const AttentionCall& call);
void attention_phase2_avx2(const AttentionCall& call);
void attention_phase2_avx512(const AttentionCall& call);

}  // namespace octavo
