// The scale of a row and its 14-bit integers with 512-bit vectors, for the prepare files of AVX512 and AMX.
#pragma once

#include "linear/simd512.h"

#include <cstdint>
#include <limits>

#include "linear/kernels.h"

namespace octavo {
namespace {

struct RowScale {
  float scale, inverse;  // inverse 0: all integers are zeros
};

inline RowScale row_scale(const float* x, int64_t k) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += 16) {
    const __m512i bits = _mm512_maskz_loadu_epi32(first_lanes(k - i), x + i);
    largest = _mm512_max_epi32(largest, _mm512_and_si512(bits, magnitude));
  }
  const int32_t bits = _mm512_reduce_max_epi32(largest);
  // Infinities and NaNs have larger bits than any number.
  if (bits >= 0x7f800000) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
  const float value = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
  if (value < kActivationMinimum) return {0.0f, 0.0f};
  return {value / kActivationLimit, kActivationLimit / value};
}

// 16 activations from x + i as integers; beyond k they are zeros.
inline __m512i quantise16(const float* x, int64_t i, int64_t k, __m512 inverse) {
  const __m512 values = _mm512_maskz_loadu_ps(first_lanes(k - i), x + i);
  return _mm512_cvtps_epi32(_mm512_mul_ps(values, inverse));
}

}  // namespace
}  // namespace octavo
