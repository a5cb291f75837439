// Integer sums of AMX tiles that wait to be scaled and written, row by row. For integer_amx.cpp only.
#pragma once

#include <cstdint>

#include "linear/kernels.h"
#include "linear/simd512.h"

namespace octavo {
namespace {

// The exact sums of 8 columns from HH, M and LL.
inline __m512d combine(const int32_t* sums) {
  const auto widen = [](const int32_t* from) {
    return _mm512_cvtepi32_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  };
  const __m512d low = _mm512_fmadd_pd(widen(sums + 256), _mm512_set1_pd(256.0), widen(sums + 512));
  return _mm512_fmadd_pd(widen(sums), _mm512_set1_pd(65536.0), low);
}

// The sums of one panel and up to 32 rows, [tile of 16 rows][HH, M, LL][row][column], on their way to the output, or,
// where k goes on, to doubles that carry them.
struct PendingSums {
  const int32_t* sums = nullptr;
  int64_t rows = 0;  // 0: nothing waits
  const float* s = nullptr;
  float* out = nullptr;
  double* carried = nullptr;
  __m512d d_low = _mm512_setzero_pd(), d_high = _mm512_setzero_pd();  // D of the columns
  const float* bias = nullptr;
  __mmask16 mask = 0;
  bool add_carried = false, carry = false;

  // Spreads the rows over `steps` steps; begin_step() then lets advance() write those that are due.
  void spread(int64_t steps) {
    due_ = 0;
    per_step_ = ((rows << 16) + steps - 1) / steps;
  }
  void begin_step() { due_ += per_step_; }
  inline void advance(const LinearCall& call) {
    if (next_ << 16 < due_ && next_ < rows) finish_row(call, next_++);
  }
  void finish(const LinearCall& call) {
    while (next_ < rows) finish_row(call, next_++);
  }

 private:
  inline void finish_row(const LinearCall& call, int64_t r) const {
    const int32_t* const from = sums + r / kTileRows * (3 * kPanel * kTileRows) + r % kTileRows * kPanel;
    __m512d low = combine(from), high = combine(from + 8);
    if (add_carried) {
      low = _mm512_add_pd(low, _mm512_loadu_pd(carried + r * kPanel));
      high = _mm512_add_pd(high, _mm512_loadu_pd(carried + r * kPanel + 8));
    }
    if (carry) {
      _mm512_storeu_pd(carried + r * kPanel, low);
      _mm512_storeu_pd(carried + r * kPanel + 8, high);
      return;
    }
    const __m512d scale = _mm512_set1_pd(static_cast<double>(s[r]));
    const __m256 first = _mm512_cvtpd_ps(_mm512_mul_pd(low, _mm512_mul_pd(scale, d_low)));
    const __m256 second = _mm512_cvtpd_ps(_mm512_mul_pd(high, _mm512_mul_pd(scale, d_high)));
    __m512 values = _mm512_insertf32x8(_mm512_castps256_ps512(first), second, 1);
    if (bias) values = _mm512_add_ps(values, _mm512_loadu_ps(bias));
    float* const to = out + r * call.ldo;
    if (call.accumulate) values = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), values);
    _mm512_mask_storeu_ps(to, mask, values);
  }

  int64_t next_ = 0, due_ = 0, per_step_ = 0;  // due: in 1/65536 of a row
};

}  // namespace
}  // namespace octavo
