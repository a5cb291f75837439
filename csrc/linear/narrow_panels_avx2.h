// What AVX2 kernels for few rows share: exact sums in 64 bits, and panels for one or two rows at a time.
#pragma once

#include "linear/vectors_avx2.h"

namespace octavo {

// Exact sums of 8 columns: 64 bits, of the even columns and of the odd ones.
struct LongSums {
  __m256i even = _mm256_setzero_si256(), odd = _mm256_setzero_si256();

  // Adds a * b of 8 columns; int32 lanes.
  void add_product(__m256i a, __m256i b) {
    even = _mm256_add_epi64(even, _mm256_mul_epi32(a, b));
    odd = _mm256_add_epi64(odd, _mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32)));
  }
  Sums8 doubles() const {
    const __m256d even_columns = to_doubles(even), odd_columns = to_doubles(odd);  // 0 2 4 6 and 1 3 5 7
    const __m256d first = _mm256_unpacklo_pd(even_columns, odd_columns), second = _mm256_unpackhi_pd(even_columns, odd_columns);
    return {_mm256_permute2f128_pd(first, second, 0x20), _mm256_permute2f128_pd(first, second, 0x31)};
  }

 private:
  // Exact below 2^51: adding 1.5 * 2^52 leaves the integer in the mantissa.
  static __m256d to_doubles(__m256i values) {
    const __m256d magic = _mm256_set1_pd(6755399441055744.0);
    return _mm256_sub_pd(_mm256_castsi256_pd(_mm256_add_epi64(values, _mm256_castpd_si256(magic))), magic);
  }
};

// Writes the sums of Rows rows, from `row` on, and both halves of a panel.
template <class F, int Rows>
void write_panel(const LinearCall& call, int64_t panel, int64_t row, const LongSums (&sums)[Rows][2]) {
  const uint8_t* const scales = call.weight->panel(panel) + F::row_scale_offset(padded_k(call.weight->k()));
  for (int half = 0; half < 2; ++half)
    for (int r = 0; r < Rows; ++r)
      write_sums8(call, sums[r][half].doubles(), reinterpret_cast<const float*>(scales) + 8 * half, row + r,
                  panel * kPanel + 8 * half);
}

// Calls two(call, panel, row) and one(call, panel, row) for all rows of each panel.
template <class Two, class One>
void by_panels(const LinearCall& call, Two two, One one) {
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
    int64_t row = 0;
    for (; row + 2 <= call.rows; row += 2) two(call, panel, row);
    for (; row < call.rows; ++row) one(call, panel, row);
  }
}

}  // namespace octavo
