// Expands codes of a panel into int16 weights, split into bytes, as the B tiles of TDPB*D. For integer_amx.cpp only.
//
// A weight is w_int = 256 * high + low with high int8 and low uint8. Per 64 inputs a panel becomes two tiles, high and low,
// each 16 quads x (16 columns x 4 inputs).
#pragma once

#include "linear/simd512.h"

#include <cstdint>

#include "linear/formats.h"

namespace octavo {
namespace {

constexpr int64_t kExpandPrefetch = 8192;  // bytes ahead: enough for a shared L3, little enough for DRAM

// e and z of the 16 columns of a group, each twice in its 32-bit lane.
struct PairScales {
  __m512i e, z;
};

template <class F>
inline PairScales load_pair_scales(const uint8_t* scales) {
  if constexpr (F::kAffine) {
    const __m512i ez = _mm512_loadu_si512(scales);
    const __m512i first = _mm512_set1_epi32(0x01000100), second = _mm512_set1_epi32(0x03020302);
    const __m512i lane = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    return {_mm512_shuffle_epi8(ez, _mm512_add_epi8(first, lane)), _mm512_shuffle_epi8(ez, _mm512_add_epi8(second, lane))};
  } else {
    const __m512i e = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
    const __m512i twice = _mm512_or_si512(e, _mm512_slli_epi32(e, 16));
    // Codes are stored plus 128; 16-bit arithmetic may wrap, the weight itself fits.
    return {twice, _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_slli_epi16(twice, 7))};
  }
}

// One quad of 16 columns from the codes of its even and odd inputs (16-bit lanes).
inline void write_quad(__m512i even, __m512i odd, const PairScales& scales, uint8_t* high, uint8_t* low) {
  const __m512i even_w = _mm512_add_epi16(_mm512_mullo_epi16(even, scales.e), scales.z);
  const __m512i odd_w = _mm512_add_epi16(_mm512_mullo_epi16(odd, scales.e), scales.z);
  const __m512i first = _mm512_set1_epi16(0x00ff);
  // 0xd8: where the mask is set the second operand, elsewhere the first.
  _mm512_storeu_si512(high, _mm512_ternarylogic_epi32(odd_w, _mm512_srli_epi16(even_w, 8), first, 0xd8));
  _mm512_storeu_si512(low, _mm512_ternarylogic_epi32(_mm512_slli_epi16(odd_w, 8), even_w, first, 0xd8));
}

// A step is 64 inputs of a panel: its codes are this many 64-byte vectors.
template <class F>
constexpr int kStepVectors = 64 * kPanel * F::kBits / 8 / 64;

// Expands vector Vector of step `step` of a panel: the high tile at `to`, the low tile at to + 1024. To be called for the
// vectors of a step in order, with the same `scales`. Fetches the codes that will be needed some steps later.
template <class F, int Vector>
inline void expand_vector(const uint8_t* panel, int64_t kp, int64_t step, uint8_t* to, PairScales& scales) {
  constexpr int kPerGroup = F::kCodeBytes / 64, kGroups = 64 / F::kGroup, kStepBytes = kGroups * (F::kCodeBytes + F::kScaleBytes);
  const auto fetch = [&](int line) {
    _mm_prefetch(reinterpret_cast<const char*>(panel + step * kStepBytes + kExpandPrefetch + 64 * line), _MM_HINT_T0);
  };
  fetch(Vector);
  if constexpr (Vector == 0)
    for (int line = kStepVectors<F>; line < kStepBytes / 64; ++line) fetch(line);
  if constexpr (Vector % kPerGroup == 0)
    scales = load_pair_scales<F>(panel + F::scale_offset(kp) + (step * kGroups + Vector / kPerGroup) * F::kScaleBytes);
  const __m512i v = _mm512_loadu_si512(panel + (step * kStepVectors<F> + Vector) * 64);
  if constexpr (F::kBits == 4) {
    const __m512i nibble = _mm512_set1_epi16(15);
    uint8_t* const quad = to + (Vector / 4 * 8 + Vector % 4) * 64;
    write_quad(_mm512_and_si512(v, nibble), _mm512_and_si512(_mm512_srli_epi16(v, 8), nibble), scales, quad, quad + 1024);
    write_quad(_mm512_and_si512(_mm512_srli_epi16(v, 4), nibble), _mm512_srli_epi16(v, 12), scales, quad + 256,
               quad + 256 + 1024);
  } else {
    const __m512i even = _mm512_and_si512(v, _mm512_set1_epi16(0x00ff));
    write_quad(even, _mm512_srli_epi16(v, 8), scales, to + 64 * Vector, to + 64 * Vector + 1024);
  }
}

}  // namespace
}  // namespace octavo
