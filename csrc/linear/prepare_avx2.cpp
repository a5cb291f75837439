#include <immintrin.h>

#include <cstring>
#include <limits>

#include "linear/vectors_avx2.h"

namespace octavo {
namespace {

// The bits of the largest magnitude; infinities and NaNs have larger bits than any number.
uint32_t largest_bits(const float* x, int64_t k) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, magnitude));
  }
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  uint32_t result = 0;
  for (uint32_t lane : lanes) result = lane > result ? lane : result;
  for (; i < k; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffffu;
    result = bits > result ? bits : result;
  }
  return result;
}

// How a row becomes integers: a = round(x * inverse), x = a * scale.
struct Quantiser {
  float inverse = 0.0f;  // 0: all integers are zeros
  float scale = 0.0f;

  Quantiser(const float* x, int64_t k) {
    const uint32_t bits = largest_bits(x, k);
    float largest;
    std::memcpy(&largest, &bits, 4);
    if (bits >= 0x7f800000u) {
      scale = std::numeric_limits<float>::quiet_NaN();
    } else if (largest >= kActivationMinimum) {
      inverse = kActivationLimit / largest;
      scale = largest / kActivationLimit;
    }
  }

  // Eight integers from x[i]; those from x[k] on are zeros.
  __m256i eight(const float* x, int64_t i, int64_t k) const {
    if (i >= k) return _mm256_setzero_si256();
    float values[8] = {};
    const float* from = x + i;
    if (k - i < 8) {
      for (int64_t j = 0; j < k - i; ++j) values[j] = from[j];
      from = values;
    }
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from), _mm256_set1_ps(inverse)));
  }

  // Sixteen of them as int16.
  __m256i sixteen(const float* x, int64_t i, int64_t k) const {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(eight(x, i, k), eight(x, i + 8, k)), 0xd8);
  }
};

int32_t sum_of(__m256i lanes) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

// Sixteen integers as four times four bytes ah and four bytes al, where a = 128*ah + al and -64 <= al < 64.
__m256i planes_of(__m256i a) {
  const __m256i half = _mm256_set1_epi16(64), mask = _mm256_set1_epi16(127);
  const __m256i low = _mm256_sub_epi16(_mm256_and_si256(_mm256_add_epi16(a, half), mask), half);
  const __m256i high = _mm256_srai_epi16(_mm256_sub_epi16(a, low), 7);
  // Bytes of a lane: its 8 high ones, then its 8 low ones.
  const __m256i order = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15,  //
                                         0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
  return _mm256_shuffle_epi8(_mm256_packs_epi16(high, low), order);
}

// The sums of both planes of 32 integers as NarrowRow has them; first and second: their planes, sum: of the integers.
void write_plane_sums(__m256i first, __m256i second, int32_t sum, uint8_t* to) {
  const __m256i ones = _mm256_set1_epi8(1), pairs = _mm256_set1_epi16(1), high_quads = _mm256_set1_epi64x(0xffffffff);
  const __m256i both = _mm256_add_epi16(_mm256_maddubs_epi16(ones, first), _mm256_maddubs_epi16(ones, second));
  const int32_t high = sum_of(_mm256_and_si256(_mm256_madd_epi16(both, pairs), high_quads)), low = sum - 128 * high;
  const int32_t forms[] = {high * 65536, low * 65536, -8 * high & 0xffff, -8 * low & 0xffff};
  std::memcpy(to, forms, sizeof forms);
}

// Begins a row: writes its scale and returns whether it has integers; if not, the row is zeros.
bool begin_row(const Quantiser& quantiser, int64_t row, uint8_t* prepared, uint8_t* to, int64_t bytes) {
  reinterpret_cast<float*>(prepared)[row] = quantiser.scale;
  if (quantiser.inverse != 0.0f) return true;
  std::memset(to, 0, static_cast<size_t>(bytes));
  return false;
}

}  // namespace

void prepare_wide_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const WideRow layout(k);
  uint8_t* const to = prepared + row_scales_bytes(rows) + row * layout.bytes();
  const Quantiser quantiser(x, k);
  if (!begin_row(quantiser, row, prepared, to, layout.bytes())) return;
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i exchanged = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  WideNorms norms;
  for (int64_t i = 0; i < layout.kp; i += 16) {
    const __m256i values = quantiser.sixteen(x, i, k);
    store(to + 2 * i, _mm256_shuffle_epi8(values, exchanged));
    norms.add(i, sum_of(_mm256_madd_epi16(_mm256_abs_epi16(values), ones)));
  }
  std::memcpy(to + layout.norms_offset(), norms.largest, sizeof norms.largest);
}

void prepare_narrow_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const NarrowRow layout(k);
  uint8_t* const to = prepared + row_scales_bytes(rows) + row * layout.bytes();
  const Quantiser quantiser(x, k);
  if (!begin_row(quantiser, row, prepared, to, layout.bytes())) return;
  int32_t* const sums16 = reinterpret_cast<int32_t*>(to + layout.sums_offset(16));
  int32_t* const sums32 = reinterpret_cast<int32_t*>(to + layout.sums_offset(32));
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < layout.kp; i += 16) {
    const __m256i values = quantiser.sixteen(x, i, k);
    store(to + layout.values_offset() + 2 * i, values);
    store(to + 2 * i, planes_of(values));
    sums16[i / 16] = sum_of(_mm256_madd_epi16(values, ones));
  }
  for (int64_t g = 0; g < layout.kp / 32; ++g) {
    sums32[g] = sums16[2 * g] + sums16[2 * g + 1];
    write_plane_sums(load(to + 64 * g), load(to + 64 * g + 32), sums32[g], to + layout.plane_sums_offset() + 16 * g);
  }
}

}  // namespace octavo
