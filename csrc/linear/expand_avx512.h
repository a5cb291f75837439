// Expands codes of a panel into int16 weights, split into bytes, as the B tiles of TDPB*D. For integer_amx.cpp only.
//
// A weight is w_int = 256 * high + low with high int8 and low uint8. Per 64 inputs a panel becomes two tiles, high and low,
// each 16 quads x (16 columns x 4 inputs).
#pragma once

#include <cstdint>

#include "linear/read_ahead.h"
#include "linear/vectors_avx512.h"

namespace octavo {
namespace {

constexpr int64_t kStepBytes = 2 * kTileBytes;  // 64 inputs of a panel, or of 16 rows: high and low tile

// Moves bytes within 16-bit lanes: the upper one down, or the lower one up. Where the mask is not set the bytes of `rest`
// stay: one operation where a shift and a blend are two.
inline __m512i upper_down(__m512i rest, __mmask64 mask, __m512i from) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(15, 15, 13, 13, 11, 11, 9, 9, 7, 7, 5, 5, 3, 3, 1, 1));
  return _mm512_mask_shuffle_epi8(rest, mask, from, order);
}
inline __m512i lower_up(__m512i rest, __mmask64 mask, __m512i from) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(14, 14, 12, 12, 10, 10, 8, 8, 6, 6, 4, 4, 2, 2, 0, 0));
  return _mm512_mask_shuffle_epi8(rest, mask, from, order);
}
constexpr __mmask64 kLowerBytes = 0x5555555555555555, kUpperBytes = 0xaaaaaaaaaaaaaaaa;

// One quad of 16 columns from the weights of its even and odd inputs (16-bit lanes).
[[gnu::always_inline]] inline void write_quad(__m512i even, __m512i odd, uint8_t* high) {
  _mm512_storeu_si512(high, upper_down(odd, kLowerBytes, even));
  _mm512_storeu_si512(high + kTileBytes, lower_up(even, kUpperBytes, odd));
}

constexpr ptrdiff_t kExpandAhead = 16 << 10;  // bytes

// A step is 64 inputs of a panel: so many parts, each a vector of two quads of 4-bit codes, or a quad of larger ones.
template <class F>
constexpr int kStepParts = F::kBits == 4 ? 8 : 16;

// One step of a panel, to be expanded part by part: the high tile to `to`, the low tile behind it. A value of local scope:
// its members stay in registers.
template <class F>
class StepExpansion {
 public:
  StepExpansion(const uint8_t* panel, int64_t kp, int64_t step, const ReadAhead& ahead, uint8_t* to)
      : codes_(panel + step * kGroups * F::kCodeBytes), scales_(panel + F::scale_offset(kp) + step * kGroups * F::kScaleBytes),
        ahead_(ahead.after(panel + step * kBytes, kExpandAhead)), to_(to) {
    for (int line = kStepParts<F>; line < kLines; ++line) prefetch_far(ahead_ + 64 * line);
  }

  // Parts [First, Last) of kStepParts<F>; in order. Each asks for a line that is read later, into the second cache: all at once
  // they would keep other loads waiting.
  template <int First, int Last>
  [[gnu::always_inline]] inline void run() {
    if constexpr (First < Last) {
      if constexpr (First < kLines) prefetch_far(ahead_ + 64 * First);
      if constexpr (First % kPerGroup == 0) pair_ = load_pair_scales<F>(scales_ + First / kPerGroup * F::kScaleBytes);
      if constexpr (F::kBits == 4) {
        const __m512i v = _mm512_loadu_si512(codes_ + 64 * First), nibble = _mm512_set1_epi16(15);
        uint8_t* const quad = to_ + (First / 4 * 8 + First % 4) * 64;
        write_quad(weights(_mm512_and_si512(v, nibble)), weights(_mm512_and_si512(upper_down(v, kLowerBytes, v), nibble)), quad);
        write_quad(weights(_mm512_and_si512(_mm512_srli_epi16(v, 4), nibble)), weights(_mm512_srli_epi16(v, 12)), quad + 256);
      } else {
        const __m512i v = quad_codes<F>(codes_, First), even = _mm512_and_si512(v, _mm512_set1_epi16(0x00ff));
        const __m512i odd = upper_down(_mm512_setzero_si512(), kLowerBytes, v);
        write_quad(weights(even), weights(odd), to_ + 64 * First);
      }
      run<First + 1, Last>();
    }
  }

 private:
  static constexpr int kGroups = 64 / F::kGroup, kPerGroup = kStepParts<F> / kGroups;
  static constexpr int kBytes = kGroups * F::kGroupBytes, kLines = (kBytes + 63) / 64;

  __m512i weights(__m512i codes) const { return _mm512_add_epi16(_mm512_mullo_epi16(codes, pair_.e), pair_.z); }

  const uint8_t *codes_, *scales_, *ahead_;
  uint8_t* to_;
  PairScales pair_{};
};

}  // namespace
}  // namespace octavo
