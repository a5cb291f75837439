// Inputs rounded to bfloat16, and the outputs of a panel: for the kernels that multiply bf16 pairs.
#pragma once

#include "linear/simd512.h"

#include "linear/kernels.h"
#include "linear/prepare_avx512.h"

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

// Stores one row of a panel's sums, with the bias, on top of what is there where the call says so.
inline void write_panel_row(const LinearCall& call, int64_t panel, int64_t row, __m512 values) {
  const int64_t column = panel * kPanel;
  const __mmask16 mask = first_lanes(call.weight->n() - column);
  if (call.weight->bias()) values = _mm512_add_ps(values, _mm512_loadu_ps(call.weight->bias() + column));
  float* const out = call.out + row * call.ldo + column;
  if (call.accumulate) values = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), values);
  _mm512_mask_storeu_ps(out, mask, values);
}

}  // namespace
}  // namespace octavo
