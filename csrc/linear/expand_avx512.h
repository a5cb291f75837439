// Expands codes of a panel into int16 weights, split into bytes, as the B tiles of TDPB*D. For integer_amx.cpp only.
//
// A weight is w_int = 256 * high + low with high int8 and low uint8. Per 64 inputs a panel becomes two tiles, high and low,
// each 16 quads x (16 columns x 4 inputs).
#pragma once

#include <cstdint>

#include "linear/vectors_avx512.h"

namespace octavo {
namespace {

constexpr int64_t kExpandPrefetch = 8192;  // bytes ahead: enough for a shared L3, little enough for DRAM

// One quad of 16 columns from the codes of its even and odd inputs (16-bit lanes).
inline void write_quad(__m512i even, __m512i odd, const PairScales& scales, uint8_t* high, uint8_t* low) {
  const __m512i even_w = _mm512_add_epi16(_mm512_mullo_epi16(even, scales.e), scales.z);
  const __m512i odd_w = _mm512_add_epi16(_mm512_mullo_epi16(odd, scales.e), scales.z);
  const __m512i first = _mm512_set1_epi16(0x00ff);
  // 0xd8: where the mask is set the second operand, elsewhere the first.
  _mm512_storeu_si512(high, _mm512_ternarylogic_epi32(odd_w, _mm512_srli_epi16(even_w, 8), first, 0xd8));
  _mm512_storeu_si512(low, _mm512_ternarylogic_epi32(_mm512_slli_epi16(odd_w, 8), even_w, first, 0xd8));
}

// A step is 64 inputs of a panel: so many parts, each a vector of two quads of 4-bit codes, or a quad of larger ones.
template <class F>
constexpr int kStepParts = F::kBits == 4 ? 8 : 16;

// One step of a panel, to be expanded part by part: the high tile to `to`, the low tile to to + 1024. A value of local
// scope: its members stay in registers.
template <class F>
class StepExpansion {
 public:
  StepExpansion(const uint8_t* panel, int64_t kp, int64_t step, uint8_t* to)
      : codes_(panel + step * kGroups * F::kCodeBytes), scales_(panel + F::scale_offset(kp) + step * kGroups * F::kScaleBytes),
        ahead_(panel + step * kBytes + kExpandPrefetch), to_(to) {
    for (int line = kStepParts<F>; line < kBytes / 64; ++line) fetch(line);
  }

  // Parts [First, Last) of kStepParts<F>; in order. Fetches codes that will be needed some steps later.
  template <int First, int Last>
  inline void run() {
    if constexpr (First < Last) {
      if constexpr (First < kBytes / 64) fetch(First);
      if constexpr (First % kPerGroup == 0) pair_ = load_pair_scales<F>(scales_ + First / kPerGroup * F::kScaleBytes);
      if constexpr (F::kBits == 4) {
        const __m512i v = _mm512_loadu_si512(codes_ + 64 * First);
        const __m512i nibble = _mm512_set1_epi16(15);
        uint8_t* const quad = to_ + (First / 4 * 8 + First % 4) * 64;
        write_quad(_mm512_and_si512(v, nibble), _mm512_and_si512(_mm512_srli_epi16(v, 8), nibble), pair_, quad, quad + 1024);
        write_quad(_mm512_and_si512(_mm512_srli_epi16(v, 4), nibble), _mm512_srli_epi16(v, 12), pair_, quad + 256,
                   quad + 256 + 1024);
      } else {
        const __m512i v = quad_codes<F>(codes_, First), even = _mm512_and_si512(v, _mm512_set1_epi16(0x00ff));
        write_quad(even, _mm512_srli_epi16(v, 8), pair_, to_ + 64 * First, to_ + 64 * First + 1024);
      }
      run<First + 1, Last>();
    }
  }

 private:
  static constexpr int kGroups = 64 / F::kGroup, kPerGroup = kStepParts<F> / kGroups;
  static constexpr int kBytes = kGroups * (F::kCodeBytes + F::kScaleBytes);
  void fetch(int line) const { _mm_prefetch(reinterpret_cast<const char*>(ahead_ + 64 * line), _MM_HINT_T0); }

  const uint8_t *codes_, *scales_, *ahead_;
  uint8_t* to_;
  PairScales pair_{};
};

}  // namespace
}  // namespace octavo
