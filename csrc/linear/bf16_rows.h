// Inputs rounded to bfloat16, for the kernels that multiply bf16 pairs.
#pragma once

#include "linear/vectors_avx512.h"

namespace octavo {
namespace {

// A row of x, padded with zeros to padded_k(k): every 32 inputs go `step` bytes after those before them.
inline void round_row(const float* x, int64_t k, uint8_t* to, int64_t step) {
  const int64_t kp = padded_k(k);
  for (int64_t i = 0; i < kp; i += 32, to += step)
    for (int64_t part = 0; part < 32; part += 16) {
      const __m512 values = _mm512_maskz_loadu_ps(first_lanes(k - i - part), x + i + part);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * part), (__m256i)_mm512_cvtneps_pbh(values));
    }
}

}  // namespace
}  // namespace octavo
