// What the AVX2 kernels of the integer formats share. Included by files compiled for AVX2 only.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "linear/kernels.h"

namespace octavo {

inline __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline __m256i broadcast4(const void* from) {  // four bytes
  int32_t value;
  std::memcpy(&value, from, 4);
  return _mm256_set1_epi32(value);
}
inline __m256i broadcast8(const void* from) {  // eight bytes
  int64_t value;
  std::memcpy(&value, from, 8);
  return _mm256_set1_epi64x(value);
}
inline void store(void* to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

// The codes of quad `quad` behind `codes`, 8 columns x 4 bytes; for formats of 6 and 8 bits. codes: at the first of the columns.
template <class F>
inline __m256i quad_codes(const uint8_t* codes, int quad) {
  if constexpr (F::kBits == 8) return load(codes + 64 * quad);
  const uint8_t* const chunk = codes + quad / 4 * 192;
  const __m256i both = load(chunk + quad % 2 * 64), bits = load(chunk + 128);
  const __m256i low = _mm256_and_si256(quad % 4 < 2 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
  __m256i high = bits;  // bits 4 and 5 of each byte
  switch (quad % 4) {
    case 0: high = _mm256_slli_epi16(bits, 4); break;
    case 1: high = _mm256_slli_epi16(bits, 2); break;
    case 3: high = _mm256_srli_epi16(bits, 2); break;
    default: break;
  }
  return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
}

// The int16 e of 8 columns, each twice.
inline __m256i doubled_scales(const uint8_t* scales) {
  const __m256i e = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  return _mm256_shuffle_epi8(e, _mm256_setr_epi8(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7,  //
                                                 8, 9, 8, 9, 10, 11, 10, 11, 12, 13, 12, 13, 14, 15, 14, 15));
}

// Keeps compilers from turning sums into trees, or starting many products at once, which 16 registers do not hold.
inline void keep_order([[maybe_unused]] __m256i& a, [[maybe_unused]] __m256i& b) {
#if defined(__GNUC__)
  asm volatile("" : "+x"(a), "+x"(b));
#endif
}

struct Sums8 {
  __m256d low, high;  // of columns 0-3 and 4-7, exact integers
};

// Writes what a row gets in the columns [column, column + 8): with the bias, on top of what is there where the call
// says so.
inline void write_columns8(const LinearCall& call, int64_t row, int64_t column, __m256 values) {
  const float* const bias = call.weight->bias();
  float* const out = call.out + row * call.ldo + column;
  const int64_t count = call.weight->n() - column;
  if (count >= 8) {
    if (bias) values = _mm256_add_ps(values, _mm256_loadu_ps(bias + column));
    if (call.accumulate) values = _mm256_add_ps(_mm256_loadu_ps(out), values);
    _mm256_storeu_ps(out, values);
    return;
  }
  alignas(32) float each[8];
  _mm256_store_ps(each, values);
  for (int64_t c = 0; c < count; ++c) {
    const float value = bias ? each[c] + bias[column + c] : each[c];
    out[c] = call.accumulate ? out[c] + value : value;
  }
}

// How many kSumUnit the sums of columns [column, column + 8) of a row hold, scaled and written where they exist. row_scales:
// the D of the columns.
inline void write_sums8(const LinearCall& call, const Sums8& sums, const float* row_scales, int64_t row, int64_t column) {
  const auto count = [](__m256d four) {
    return _mm256_cvtpd_ps(_mm256_floor_pd(_mm256_mul_pd(four, _mm256_set1_pd(1.0 / kSumUnit))));
  };
  const __m256 units = _mm256_set_m128(count(sums.high), count(sums.low));
  const __m256 unit_value = _mm256_mul_ps(_mm256_loadu_ps(row_scales), _mm256_set1_ps(kSumUnit));
  const __m256 scale = _mm256_set1_ps(reinterpret_cast<const float*>(call.prepared)[row]);
  write_columns8(call, row, column, _mm256_mul_ps(units, _mm256_mul_ps(scale, unit_value)));
}

}  // namespace octavo
