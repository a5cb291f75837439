// Integer sums of AMX tiles that wait to be scaled and written, row by row. For integer_amx.cpp only.
#pragma once

#include <cstdint>

#include "linear/kernels.h"
#include "linear/vectors_avx512.h"

namespace octavo {
namespace {

constexpr int64_t kRowSums = 3 * kPanel;  // of a row: HH, M and LL of 16 columns

// The exact sums of 8 columns from HH, M and LL.
inline __m512d exact_sums(const int32_t* sums) {
  const auto widen = [](const int32_t* from) {
    return _mm512_cvtepi32_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  };
  const __m512d low = _mm512_fmadd_pd(widen(sums + kPanel), _mm512_set1_pd(256.0), widen(sums + 2 * kPanel));
  return _mm512_fmadd_pd(widen(sums), _mm512_set1_pd(65536.0), low);
}

// How many kSumUnit the sums of 16 columns hold, where that fits 32 bits.
inline __m512 count_narrow_units(const int32_t* sums) {
  static_assert(kSumUnit == 256);
  const __m512i low = _mm512_srai_epi32(_mm512_loadu_si512(sums + 2 * kPanel), 8);
  const __m512i high = _mm512_slli_epi32(_mm512_loadu_si512(sums), 8);
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_add_epi32(low, _mm512_loadu_si512(sums + kPanel)), high));
}

// The sums of one panel and up to 32 rows, [row][HH, M, LL][column], on their way to the output, or, where k goes on, to
// doubles that carry them.
struct PendingSums {
  int64_t rows = 0;  // that wait; those below are of the first of them
  const int32_t* sums = nullptr;
  const float* s = nullptr;
  float* out = nullptr;
  double* carried = nullptr;
  __m512 unit_value = _mm512_setzero_ps();  // of the columns
  const float* bias = nullptr;
  __mmask16 mask = 0;
  bool narrow = false, add_carried = false, carry = false;

  // Spreads the rows over `steps` steps: begin_step() then lets advance() write some, and finish() the rest. Sums that do not
  // fit 32 bits are rare, and all wait for finish().
  void spread(int64_t steps) {
    due_ = 0;
    per_step_ = narrow ? (rows << 16) / steps : 0;
  }
  void begin_step() { due_ += per_step_; }
  [[gnu::always_inline]] inline void advance(const LinearCall& call) {
    if (due_ < 1 << 16) return;
    due_ -= 1 << 16;
    write_row(call, count_narrow_units(sums));
    next_row(call);
  }
  void finish(const LinearCall& call) {
    while (rows > 0) {
      if (narrow)
        write_row(call, count_narrow_units(sums));
      else
        finish_wide(call);
      next_row(call);
    }
  }

 private:
  inline void next_row(const LinearCall& call) {
    sums += kRowSums;
    carried += kPanel;
    out += call.ldo;
    ++s;
    --rows;
  }
  void finish_wide(const LinearCall& call) const {
    Sums16 exact{exact_sums(sums), exact_sums(sums + 8)};
    if (add_carried) {
      exact.low = _mm512_add_pd(exact.low, _mm512_loadu_pd(carried));
      exact.high = _mm512_add_pd(exact.high, _mm512_loadu_pd(carried + 8));
    }
    if (!carry) return write_row(call, count_units(exact));
    _mm512_storeu_pd(carried, exact.low);
    _mm512_storeu_pd(carried + 8, exact.high);
  }
  [[gnu::always_inline]] inline void write_row(const LinearCall& call, __m512 units) const {
    __m512 values = _mm512_mul_ps(units, _mm512_mul_ps(_mm512_set1_ps(*s), unit_value));
    if (bias) values = _mm512_add_ps(values, _mm512_loadu_ps(bias));
    if (call.accumulate) values = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), values);
    _mm512_mask_storeu_ps(out, mask, values);
  }

  int64_t due_ = 0, per_step_ = 0;  // in 1/65536 of a row
};

}  // namespace
}  // namespace octavo
