#include "linear/prepare_avx512.h"

#include <cstring>

namespace octavo {
namespace {

// The sums of one plane over groups of 16 and of 32, in the forms of VectorRow.
void write_sums(const VectorRow& layout, uint8_t* to, int low) {
  const int8_t* const plane = layout.plane(to, low);
  const __m512i ones = _mm512_set1_epi8(1);
  const __m128i pick = _mm_set_epi32(0, 0, 2, 0);
  for (int64_t i = 0; i < layout.kp; i += 64) {
    const __m512i bytes = _mm512_loadu_si512(plane + i);
    __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, bytes);
    sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
    sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
    // Every 128-bit lane now holds the sum of its 16 values four times.
    const __m128i groups16 = _mm512_castsi512_si128(
        _mm512_permutexvar_epi32(_mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0), sums));
    const __m128i pairs = _mm_add_epi32(groups16, _mm_shuffle_epi32(groups16, _MM_SHUFFLE(2, 3, 0, 1)));
    const __m128i groups32 = _mm_castps_si128(_mm_permutevar_ps(_mm_castsi128_ps(pairs), pick));
    const __m128i minus128 = _mm_set1_epi32(-128);
    const int64_t g16 = i / 16 * 4, g32 = i / 32 * 4;
    const auto at = [&](int group, bool negated) {
      return reinterpret_cast<__m128i*>(to + layout.sums_offset(group, negated, low) + (group == 16 ? g16 : g32));
    };
    _mm_storeu_si128(at(16, false), _mm_slli_epi32(groups16, 16));
    _mm_storeu_si128(at(16, true), _mm_mullo_epi32(groups16, minus128));
    _mm_storel_epi64(at(32, false), _mm_slli_epi32(groups32, 16));
    _mm_storel_epi64(at(32, true), _mm_mullo_epi32(groups32, minus128));
  }
}

}  // namespace

void prepare_vector_row_avx512(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const VectorRow layout(k);
  uint8_t* const to = prepared + row_scales_bytes(rows) + row * layout.bytes();
  const RowScale scale = row_scale(x, k);
  reinterpret_cast<float*>(prepared)[row] = scale.scale;
  if (scale.inverse == 0.0f) {
    std::memset(to, 0, static_cast<size_t>(layout.bytes()));
    return;
  }
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  const __m512i sixty_four = _mm512_set1_epi32(64), mask = _mm512_set1_epi32(127);
  for (int64_t i = 0; i < layout.kp; i += 16) {
    const __m512i a = quantise16(x, i, k, inverse);
    const __m512i shifted = _mm512_add_epi32(a, sixty_four);
    const __m512i low = _mm512_sub_epi32(_mm512_and_si512(shifted, mask), sixty_four);
    const __m512i high = _mm512_srai_epi32(shifted, 7);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + layout.kp + i), _mm512_cvtepi32_epi8(low));
  }
  write_sums(layout, to, 0);
  write_sums(layout, to, 1);
}

}  // namespace octavo
