// Scores to weights, for the kernels of every instruction set: internal linkage, one copy per including file.
//
// Scores are in powers of two (the query carries scale * log2(e)).
#pragma once

#include <cfloat>

#include "attention/call.h"

namespace octavo {
namespace {

// 2^x for x <= 0 (a little above is fine); at least 2^-126; exactly 1 for 0; NaN stays NaN. The polynomial's relative error
// is 3e-6 with kDegree 4, enough for a weight that is rounded to bf16 next, and 2e-9 with kDegree 6.
template <class Simd, int kDegree>
inline typename Simd::Vec exp2_lanes(typename Simd::Vec x) {
  static_assert(kDegree == 4 || kDegree == 6, "no coefficients for this degree");
  using Vec = typename Simd::Vec;
  // 1.5 * 2^23 + 127: adding it rounds to an integer and leaves the biased exponent in the low bits.
  const Vec magic = Simd::set(12583039.0f);
  x = Simd::max(Simd::set(-126.0f), x);
  const Vec shifted = Simd::add(x, magic);
  const Vec r = Simd::sub(x, Simd::sub(shifted, magic));
  Vec p;
  if constexpr (kDegree == 4) {
    p = Simd::fma(Simd::set(0.009582852944731712f), r, Simd::set(0.055906426161527634f));
    p = Simd::fma(p, r, Simd::set(0.24024099111557007f));
    p = Simd::fma(p, r, Simd::set(0.6931241750717163f));
  } else {
    p = Simd::fma(Simd::set(0.00015353361959569156f), r, Simd::set(0.0013398873852565885f));
    p = Simd::fma(p, r, Simd::set(0.00961843691766262f));
    p = Simd::fma(p, r, Simd::set(0.055503323674201965f));
    p = Simd::fma(p, r, Simd::set(0.24022647738456726f));
    p = Simd::fma(p, r, Simd::set(0.6931471824645996f));
  }
  p = Simd::fma(p, r, Simd::set(1.0f));
  return Simd::mul(p, Simd::exponent(shifted));
}

// float32 weights in the place of the scores.
template <class SimdType>
struct FloatWeights {
  using Simd = SimdType;
  static constexpr int kDegree = 6;
  static void store(float* row, int at, const typename Simd::Vec* weights) {
    for (int i = 0; i < kKvTile / Simd::kWidth; ++i) Simd::store(row + at + i * Simd::kWidth, weights[i]);
  }
};

template <class Weights, bool kMasked>
inline void weigh_tile(float* row, int at, typename Weights::Simd::Vec max, int begin, int end,
                       typename Weights::Simd::Vec* sums) {
  using Simd = typename Weights::Simd;
  constexpr int kVectors = kKvTile / Simd::kWidth;
  typename Simd::Vec weights[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    const int first = at + i * Simd::kWidth;
    weights[i] = exp2_lanes<Simd, Weights::kDegree>(Simd::sub(Simd::load(row + first), max));
    // A replaced score, not a factor 0: what lies in an unseen slot may be NaN.
    if (kMasked) weights[i] = Simd::where(Simd::lanes(begin - first, end - first), weights[i], Simd::zero());
    sums[i] = Simd::add(sums[i], weights[i]);
  }
  Weights::store(row, at, weights);
}

template <class Simd>
inline float row_max(const float* row, int begin, int end) {
  constexpr int kWidth = Simd::kWidth;
  typename Simd::Vec max = Simd::set(-FLT_MAX), other = max;
  int at = begin / kWidth * kWidth;
  if (at < begin) {
    max = Simd::where(Simd::lanes(begin - at, end - at), Simd::max(Simd::load(row + at), max), max);
    at += kWidth;
  }
  for (; at + 2 * kWidth <= end; at += 2 * kWidth) {
    max = Simd::max(Simd::load(row + at), max);
    other = Simd::max(Simd::load(row + at + kWidth), other);
  }
  max = Simd::max(max, other);
  for (; at < end; at += kWidth)
    max = Simd::where(Simd::lanes(0, end - at), Simd::max(Simd::load(row + at), max), max);
  return Simd::highest(max);
}

struct RowStats {
  float max, sum;
};

// Turns the scores of one row at [lo, hi), whole tiles of a partition, into weights; those outside [begin, end) become 0.
// A row that sees nothing has max -FLT_MAX and sum 0, which a merge ignores.
template <class Weights>
inline RowStats softmax_row(float* row, int lo, int hi, int begin, int end) {
  using Simd = typename Weights::Simd;
  constexpr int kVectors = kKvTile / Simd::kWidth;
  typename Simd::Vec sums[kVectors], zeros[kVectors];
  for (int i = 0; i < kVectors; ++i) sums[i] = zeros[i] = Simd::zero();
  if (begin < lo) begin = lo;
  if (end > hi) end = hi;
  if (begin >= end) {
    for (int at = lo; at < hi; at += kKvTile) Weights::store(row, at, zeros);
    return {-FLT_MAX, 0.0f};
  }
  const float highest = row_max<Simd>(row, begin, end);
  const typename Simd::Vec max = Simd::set(highest);
  int at = lo;
  for (; at + kKvTile <= begin; at += kKvTile) Weights::store(row, at, zeros);
  if (at < begin) {
    weigh_tile<Weights, true>(row, at, max, begin, end, sums);
    at += kKvTile;
  }
  for (; at + kKvTile <= end; at += kKvTile) weigh_tile<Weights, false>(row, at, max, begin, end, sums);
  if (at < end) {
    weigh_tile<Weights, true>(row, at, max, begin, end, sums);
    at += kKvTile;
  }
  for (; at < hi; at += kKvTile) Weights::store(row, at, zeros);
  typename Simd::Vec sum = sums[0];
  for (int i = 1; i < kVectors; ++i) sum = Simd::add(sum, sums[i]);
  return {highest, Simd::total(sum)};
}

// Merges a partition's result into what came before it: the one formula, wherever the two were computed.
template <class Simd>
inline void merge_row(float* state, RowStats& stats, const float* partial, RowStats part, int dim) {
  using Vec = typename Simd::Vec;
  const float max = part.max > stats.max ? part.max : stats.max;
  alignas(64) float factors[Simd::kWidth] = {stats.max - max, part.max - max};
  Simd::store(factors, exp2_lanes<Simd, 6>(Simd::load(factors)));
  const Vec old_factor = Simd::set(factors[0]), new_factor = Simd::set(factors[1]);
  for (int d = 0; d < dim; d += Simd::kWidth) {
    const Vec scaled = Simd::mul(Simd::load(state + d), old_factor);
    Simd::store(state + d, Simd::fma(Simd::load(partial + d), new_factor, scaled));
  }
  stats = {max, stats.sum * factors[0] + part.sum * factors[1]};
}

// out = state / sum. Adding 0 makes the sign of a zero that of every other way to compute it.
template <class Simd>
inline void finish_row(float* state, float sum, float* out, int head_dim) {
  using Vec = typename Simd::Vec;
  const Vec factor = Simd::set(1.0f / sum);
  int d = 0;
  for (; d + Simd::kWidth <= head_dim; d += Simd::kWidth)
    Simd::store(out + d, Simd::fma(Simd::load(state + d), factor, Simd::zero()));
  if (d == head_dim) return;
  Simd::store(state + d, Simd::fma(Simd::load(state + d), factor, Simd::zero()));
  for (; d < head_dim; ++d) out[d] = state[d];
}

}  // namespace
}  // namespace octavo
