#include "linear/prepare_avx512.h"

#include <cstring>

#include "common/prefetch.h"

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

// 32 integers as int16, of every four the second and the third exchanged.
__m512i exchanged(__m512i first, __m512i second) {
  alignas(64) static constexpr int16_t kOrder[32] = {0,  4,  2,  6,  8,  12, 10, 14, 16, 20, 18, 22, 24, 28, 26, 30,
                                                     32, 36, 34, 38, 40, 44, 42, 46, 48, 52, 50, 54, 56, 60, 58, 62};
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(kOrder), second);
}

// The norms of a row, 256 inputs at a time: in each lane the largest sum that it has seen.
class RowNorms {
 public:
  static constexpr int kVectors = 8;  // of 32 inputs

  // |values| of 32 inputs, as sums of two.
  static __m512i pairs(__m512i values) {
    return _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_abs_epi16(values), _mm512_set1_epi16(1));
  }
  // Adds 256 inputs, which pairs() has summed.
  void add(const __m512i (&p)[kVectors]) {
    const __m512i quads[] = {halved(p[0], p[1]), halved(p[2], p[3]), halved(p[4], p[5]), halved(p[6], p[7])};
    __m512i sums = halved(halved(quads[0], quads[1]), halved(quads[2], quads[3]));  // of 16 inputs each
    keep(0, sums);
    keep(1, sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB)));
    keep(2, sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC)));
    keep(3, sums = _mm512_add_epi32(sums, _mm512_shuffle_i32x4(sums, sums, _MM_SHUFFLE(2, 3, 0, 1))));
    keep(4, _mm512_add_epi32(sums, _mm512_shuffle_i32x4(sums, sums, _MM_SHUFFLE(1, 0, 3, 2))));
  }
  // As WideNorms::largest.
  void write(uint8_t* to) const {
    int32_t values[WideNorms::kCount];
    for (int i = 0; i < WideNorms::kCount; ++i) values[i] = _mm512_reduce_max_epi32(largest_[i]);
    std::memcpy(to, values, sizeof values);
  }

 private:
  // The sums of neighbours among the 32 of both.
  static __m512i halved(__m512i first, __m512i second) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_permutex2var_epi32(first, even, second),
                            _mm512_permutex2var_epi32(first, odd, second));
  }
  void keep(int i, __m512i sums) { largest_[i] = _mm512_max_epi32(largest_[i], sums); }

  __m512i largest_[WideNorms::kCount] = {};
};

}  // namespace

void prepare_wide_row_avx512(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const WideTiles layout(rows, k);
  uint8_t* const tile = prepared + row_scales_bytes(rows) + row / layout.height * layout.tile_bytes();
  const int64_t place = row % layout.height;
  const auto line = [&](int64_t i) { return tile + 2 * (layout.offset(i) + 32 * place); };
  // Another core has read the lines of the last inputs, and they are apart: asked for one by one, each would be waited for.
  for (int64_t i = 0; i < layout.kp; i += 32) prefetch_to_write(line(i));
  const RowScale scale = row_scale(x, k);
  reinterpret_cast<float*>(prepared)[row] = scale.scale;
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  const bool zeros = scale.inverse == 0.0f;  // x may hold infinities: not to be multiplied
  RowNorms norms;
  for (int64_t i = 0; i < layout.kp;) {
    __m512i pairs[RowNorms::kVectors] = {};
    for (int v = 0; v < RowNorms::kVectors && i < layout.kp; ++v, i += 32) {
      const __m512i values = zeros ? _mm512_setzero_si512()
                                   : exchanged(quantise16(x, i, k, inverse), quantise16(x, i + 16, k, inverse));
      _mm512_storeu_si512(line(i), values);
      pairs[v] = RowNorms::pairs(values);
    }
    norms.add(pairs);
  }
  norms.write(tile + 2 * layout.kp * layout.height + place * WideNorms::kBytes);
}

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
