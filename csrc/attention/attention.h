// Paged attention over a KvCache: causal, grouped queries, optional sliding window, ragged batches.
//
// Numerics, the same for every batch, chunking, block size, split and number of threads: absolute positions are reduced
// in partitions of 512. Within one: m = largest score, weights 2^(score - m), their sum in fixed lanes, and the weighted
// sum of V over 32-token tiles, ascending. Partitions are merged in ascending order. A position that a row does not see
// has weight 0 exactly. Results differ in rounding between cache types only and, with bf16, between instruction sets.
//
//   bf16 cache, AMX and AVX512-BF16:  q and weights rounded to bf16 (the sum is that of the rounded ones), sums in float32
//   bf16 cache, AVX512-VNNI and AVX2: everything but K and V in float32
//   f32 cache, any:                   float32 (one code for everything from AVX512-VNNI on)
//   int8 cache, any:           q in 16 bits with a scale per row, weights times V's scales in 16 bits with a scale per
//                              row and partition, both products exact in int32; the same bits on every instruction set
#pragma once

#include "attention/plan.h"
#include "common/isa.h"

namespace octavo {

// Inside a team region, on the threads of the plan: phase 1, until each fragment was in one call; then, where plan.needs_merge(),
// a barrier and phase 2 on every thread.
// q and out: [T, heads * head_dim] float32 with row strides ldq and ldo (elements), not overlapping, or the same memory. The
// keys and values of the step's own tokens must be in the cache already. Never throws.
void attention_phase1(Isa isa, const AttentionPlan& plan, const KvCache& cache, int place, const float* q, int64_t ldq,
                      float* out, int64_t ldo, float scale, int thread, Range fragments);
void attention_phase2(Isa isa, const AttentionPlan& plan, const KvCache& cache, int place, const float* q, int64_t ldq,
                      float* out, int64_t ldo, float scale, int thread);

}  // namespace octavo
