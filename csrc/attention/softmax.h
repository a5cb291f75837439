// Scores to weights, for the kernels of every instruction set: internal linkage, one copy per including file.
//
// Scores are in powers of two (the query carries scale * log2(e)).
#pragma once

#include <immintrin.h>

#include <cfloat>

#include "attention/call.h"

namespace octavo {
namespace {

// While one lives, results and operands too small for a normal float are 0: a weight far below the largest one would
// else cost a hundred times its arithmetic. Both phases work so, whatever the caller's setting.
class FlushTiny {
 public:
  FlushTiny() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~FlushTiny() { _mm_setcsr(saved_); }
  FlushTiny(const FlushTiny&) = delete;
  FlushTiny& operator=(const FlushTiny&) = delete;

 private:
  const unsigned saved_;
};

// 2^x for x <= 0 (a little above is fine), relative error 2e-9; at least 2^-126; exactly 1 for 0; NaN stays NaN.
template <class Simd>
inline typename Simd::Vec exp2_lanes(typename Simd::Vec x) {
  using Vec = typename Simd::Vec;
  // 1.5 * 2^23 + 127: adding it rounds to an integer and leaves the biased exponent in the low bits.
  const Vec magic = Simd::set(12583039.0f);
  x = Simd::max(Simd::set(-126.0f), x);
  const Vec shifted = Simd::add(x, magic);
  const Vec r = Simd::sub(x, Simd::sub(shifted, magic));
  Vec p = Simd::fma(Simd::set(0.00015353361959569156f), r, Simd::set(0.0013398873852565885f));
  p = Simd::fma(p, r, Simd::set(0.00961843691766262f));
  p = Simd::fma(p, r, Simd::set(0.055503323674201965f));
  p = Simd::fma(p, r, Simd::set(0.24022647738456726f));
  p = Simd::fma(p, r, Simd::set(0.6931471824645996f));
  p = Simd::fma(p, r, Simd::set(1.0f));
  return Simd::mul(p, Simd::exponent(shifted));
}

// How weights are kept. weigh: 2^score; store: the weights of the tile at `at`, added to kSums sums in an order that
// depends on the position only; clear: a tile of zeros. This one: float32 weights in the place of the scores.
template <class SimdType>
struct FloatWeights {
  using Simd = SimdType;
  static constexpr int kVectors = kKvTile / Simd::kWidth, kSums = kVectors;
  static typename Simd::Vec weigh(typename Simd::Vec score) { return exp2_lanes<Simd>(score); }
  static void clear(float* row, int at) {
    for (int i = 0; i < kVectors; ++i) Simd::store(row + at + i * Simd::kWidth, Simd::zero());
  }
  static void store(float* row, int at, const typename Simd::Vec* weights, typename Simd::Vec* sums) {
    for (int i = 0; i < kVectors; ++i) {
      sums[i] = Simd::add(sums[i], weights[i]);
      Simd::store(row + at + i * Simd::kWidth, weights[i]);
    }
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
    weights[i] = Weights::weigh(Simd::sub(Simd::load(row + first), max));
    // A replaced score, not a factor 0: what lies in an unseen slot may be NaN.
    if (kMasked) weights[i] = Simd::where(Simd::lanes(begin - first, end - first), weights[i], Simd::zero());
  }
  Weights::store(row, at, weights, sums);
}

// What one row sees of tiles [lo, hi) of a partition: positions [begin, end), relative to the partition.
struct Sight {
  int begin, end;
};

// The largest score in sight; -FLT_MAX where nothing is. NaN is passed over: the weights carry it.
template <class Simd>
inline float row_max(const float* row, Sight sight) {
  constexpr int kWidth = Simd::kWidth;
  const int end = sight.end;
  typename Simd::Vec max = Simd::set(-FLT_MAX), other = max;
  int at = sight.begin / kWidth * kWidth;
  if (at < sight.begin && at < end) {
    max = Simd::where(Simd::lanes(sight.begin - at, end - at), Simd::max(Simd::load(row + at), max), max);
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

// Turns the scores of one row at [lo, hi), whole tiles, into weights, 0 out of sight, and returns their sum.
template <class Weights>
inline float weigh_row(float* row, int lo, int hi, Sight sight, float highest) {
  using Simd = typename Weights::Simd;
  const int begin = sight.begin, end = sight.end;
  typename Simd::Vec sums[Weights::kSums];
  for (auto& sum : sums) sum = Simd::zero();
  const typename Simd::Vec max = Simd::set(highest);
  int at = lo;
  for (; at + kKvTile <= begin && at < hi; at += kKvTile) Weights::clear(row, at);
  if (at < begin && at < end) {
    weigh_tile<Weights, true>(row, at, max, begin, end, sums);
    at += kKvTile;
  }
  for (; at + kKvTile <= end; at += kKvTile) weigh_tile<Weights, false>(row, at, max, begin, end, sums);
  if (at < end) {
    weigh_tile<Weights, true>(row, at, max, begin, end, sums);
    at += kKvTile;
  }
  for (; at < hi; at += kKvTile) Weights::clear(row, at);
  return Simd::total(sums);
}

// The running result of some rows: largest scores, sums of weights, and weighted sums of V.
struct RowState {
  float *max, *sum, *out;
};

// Merges a partition's result of `rows` rows into what came before it: the one formula, wherever the two were computed.
// May read and write max and sum up to a whole vector.
template <class Simd>
inline void merge_rows(const RowState& state, const RowState& part, int rows, int dim) {
  using Vec = typename Simd::Vec;
  for (int first = 0; first < rows; first += Simd::kWidth) {
    const Vec old_max = Simd::load(state.max + first), part_max = Simd::load(part.max + first);
    const Vec max = Simd::max(old_max, part_max);
    const Vec old_factor = exp2_lanes<Simd>(Simd::sub(old_max, max));
    const Vec part_factor = exp2_lanes<Simd>(Simd::sub(part_max, max));
    const Vec part_sum = Simd::mul(Simd::load(part.sum + first), part_factor);
    Simd::store(state.max + first, max);
    Simd::store(state.sum + first, Simd::fma(Simd::load(state.sum + first), old_factor, part_sum));
    alignas(64) float factors[2][Simd::kWidth];
    Simd::store(factors[0], old_factor);
    Simd::store(factors[1], part_factor);
    for (int r = first; r < rows && r < first + Simd::kWidth; ++r) {
      const Vec keep = Simd::set(factors[0][r - first]), take = Simd::set(factors[1][r - first]);
      float* out = state.out + int64_t{r} * dim;
      const float* partial = part.out + int64_t{r} * dim;
      for (int d = 0; d < dim; d += Simd::kWidth)
        Simd::store(out + d, Simd::fma(Simd::load(partial + d), take, Simd::mul(Simd::load(out + d), keep)));
    }
  }
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
