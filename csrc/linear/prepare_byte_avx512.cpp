#include "linear/simd512.h"

#include "linear/byte_rows.h"

namespace octavo {
namespace {

struct Halves {
  __m512 first, second;
};

// 32 inputs from x + i; beyond k they are zeros.
Halves load_group(const float* x, int64_t i, int64_t k) {
  return {_mm512_maskz_loadu_ps(first_lanes(k - i), x + i), _mm512_maskz_loadu_ps(first_lanes(k - i - 16), x + i + 16)};
}

// Returns whether the inputs are finite.
bool write_group(const Halves& values, ByteGroup& to) {
  // Infinities and NaNs have larger bits than any number.
  const auto magnitude = [](__m512 half) { return _mm512_castps_si512(_mm512_abs_ps(half)); };
  const int32_t bits = _mm512_reduce_max_epi32(_mm512_max_epi32(magnitude(values.first), magnitude(values.second)));
  if (bits >= 0x7f800000) return false;
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
  const float inverse = largest < kActivationMinimum ? 0.0f : kByteLimit / largest;
  const auto quantise = [&](__m512 half, int8_t* codes) {
    const __m512i integers = _mm512_cvtps_epi32(_mm512_mul_ps(half, _mm512_set1_ps(inverse)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(integers));
    return _mm512_reduce_add_epi32(integers);
  };
  const int32_t first = quantise(values.first, to.codes), second = quantise(values.second, to.codes + 16);
  to.facts = ByteGroupFacts(inverse == 0.0f ? 0.0f : largest / kByteLimit, first, second);
  return true;
}

}  // namespace

void prepare_byte_row_avx512(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const ByteTiles512 layout(rows, k);
  ByteGroup* const to = layout.row(prepared, row);
  bool finite = true;
  for (int64_t g = 0; g < layout.groups; ++g)
    finite = write_group(load_group(x, g * kByteGroup, k), to[g * layout.height]) && finite;
  for (int64_t g = 0; !finite && g < layout.groups; ++g) to[g * layout.height] = broken_group<ByteGroup>();
}

}  // namespace octavo
