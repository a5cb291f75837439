// What the AVX512 kernels of the integer formats share. Included by files compiled for AVX512 only.
#pragma once

#include "linear/simd512.h"

#include <cstdint>

#include "linear/kernels.h"

namespace octavo {
namespace {

inline __m512i load(const void* from) { return _mm512_loadu_si512(from); }

// The codes of quad `quad` behind `codes`, 16 columns x 4 bytes; for formats of 6 and 8 bits.
template <class F>
inline __m512i quad_codes(const uint8_t* codes, int quad) {
  if constexpr (F::kBits == 8) return load(codes + 64 * quad);
  const uint8_t* const chunk = codes + quad / 4 * 192;
  const __m512i both = load(chunk + quad % 2 * 64), bits = load(chunk + 128);
  const __m512i low = _mm512_and_si512(quad % 4 < 2 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
  __m512i high = bits;  // bits 4 and 5 of each byte
  switch (quad % 4) {
    case 0: high = _mm512_slli_epi16(bits, 4); break;
    case 1: high = _mm512_slli_epi16(bits, 2); break;
    case 3: high = _mm512_srli_epi16(bits, 2); break;
    default: break;
  }
  return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(0x30), 0xf8);  // low | (high & 0x30)
}

// e and z of the 16 columns of a group, each twice in its 32-bit lane.
struct PairScales {
  __m512i e, z;
};

template <class F>
inline PairScales load_pair_scales(const uint8_t* scales) {
  if constexpr (F::kAffine) {
    const __m512i ez = load(scales);
    const __m512i first = _mm512_set1_epi32(0x01000100), second = _mm512_set1_epi32(0x03020302);
    const __m512i lane = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    return {_mm512_shuffle_epi8(ez, _mm512_add_epi8(first, lane)), _mm512_shuffle_epi8(ez, _mm512_add_epi8(second, lane))};
  } else {
    const __m512i e = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
    const __m512i twice = _mm512_or_si512(e, _mm512_slli_epi32(e, 16));
    // What was added to the codes; 16-bit arithmetic may wrap, the weight itself fits.
    return {twice, _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_slli_epi16(twice, F::kBits - 1))};
  }
}

// Writes what a row gets in the 16 columns from `column`: with the bias, on top of what is there where the call says so.
inline void write_columns(const LinearCall& call, int64_t row, int64_t column, __m512 values) {
  const __mmask16 mask = first_lanes(call.weight->n() - column);
  if (call.weight->bias()) values = _mm512_add_ps(values, _mm512_loadu_ps(call.weight->bias() + column));
  float* const out = call.out + row * call.ldo + column;
  if (call.accumulate) values = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), values);
  _mm512_mask_storeu_ps(out, mask, values);
}

struct Sums16 {
  __m512d low, high;  // of columns 0-7 and 8-15, exact integers
};

// How many kSumUnit each of the sums holds.
inline __m512 count_units(const Sums16& sums) {
  const auto count = [](__m512d eight) {
    const __m512d units = _mm512_mul_pd(eight, _mm512_set1_pd(1.0 / kSumUnit));
    return _mm512_castps256_ps512(_mm512_cvtpd_ps(_mm512_roundscale_pd(units, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)));
  };
  return _mm512_insertf32x8(count(sums.low), _mm512_castps512_ps256(count(sums.high)), 1);
}

// What a unit is worth in a panel's 16 columns where a row's scale is 1. row_scales: their D.
inline __m512 unit_values(const uint8_t* row_scales) {
  return _mm512_mul_ps(_mm512_loadu_ps(row_scales), _mm512_set1_ps(kSumUnit));
}

// Scales the units of a panel's 16 columns for a row and writes those that exist.
inline void write_units16(const LinearCall& call, __m512 units, __m512 unit_value, int64_t row, int64_t column) {
  const __m512 scale = _mm512_set1_ps(reinterpret_cast<const float*>(call.prepared)[row]);
  write_columns(call, row, column, _mm512_mul_ps(units, _mm512_mul_ps(scale, unit_value)));
}

}  // namespace
}  // namespace octavo
