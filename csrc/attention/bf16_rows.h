// Query rows and weights in bf16, for the kernels that multiply bf16 pairs: internal linkage.
#pragma once

#include "attention/simd_avx512.h"

#include <cstring>

#include "attention/call.h"

namespace octavo {
namespace {

// Query row `row` of a task: scaled, rounded, padded with zeros, in `dim` times 2 bytes.
inline void pack_bf16_row(const float* x, int head_dim, int dim, float scale, float* q, int row) {
  char* packed = reinterpret_cast<char*>(q) + int64_t{row} * dim * 2;
  const __m512 factor = _mm512_set1_ps(scale);
  for (int d = 0; d < dim; d += 32) {
    const __m512 low = _mm512_maskz_loadu_ps(Avx512::lanes(0, head_dim - d), x + d);
    const __m512 high = _mm512_maskz_loadu_ps(Avx512::lanes(0, head_dim - d - 16), x + d + 16);
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_mul_ps(high, factor), _mm512_mul_ps(low, factor));
    std::memcpy(packed + d * 2, &both, sizeof both);
  }
}

// bf16 weights, packed into the front half of the row of scores that they come from.
struct Bf16Weights {
  using Simd = Avx512;
  // 2^score, relative error 9e-5, a twentieth of what rounding to bf16 costs; 0 below 2^-126, exactly 1 for 0.
  static __m512 weigh(__m512 score) {
    const __m512 fraction = _mm512_reduce_ps(score, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.07706703990697861f), fraction, _mm512_set1_ps(0.22764499485492706f));
    p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.6951167583465576f));
    p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, score);
  }
  static constexpr int kSums = 1;
  static void clear(float* row, int at) { std::memset(reinterpret_cast<char*>(row) + at * 2, 0, 64); }
  // The sum is that of the rounded weights, so that they make a true average of V.
  static void store(float* row, int at, const __m512* weights, __m512* sums) {
    const __m512bh packed = _mm512_cvtne2ps_pbh(weights[1], weights[0]);
    std::memcpy(reinterpret_cast<char*>(row) + at * 2, &packed, sizeof packed);
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    sums[0] = _mm512_dpbf16_ps(sums[0], packed, ones);
  }
};

}  // namespace
}  // namespace octavo
