#include <immintrin.h>

#include <cstring>

#include "linear/byte_rows.h"
#include "linear/vectors_avx2.h"

namespace octavo {
namespace {

// The largest magnitude among 32 inputs as its bits; infinities and NaNs have larger bits than any number.
uint32_t largest_bits(const float* x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < kByteGroup; i += 8) largest = _mm256_max_epi32(largest, _mm256_and_si256(load(x + i), magnitude));
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1))));
}

int32_t sum_of(__m256i values) {
  const __m256i pairs = _mm256_madd_epi16(values, _mm256_set1_epi16(1));
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

// Sixteen inputs as int16.
__m256i quantise16(const float* x, __m256 inverse) {
  const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
  const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

// Returns whether the inputs are finite.
bool write_group(const float* x, WideByteGroup& to) {
  const uint32_t bits = largest_bits(x);
  float largest;
  std::memcpy(&largest, &bits, 4);
  if (bits >= 0x7f800000u) return false;
  const float inverse = largest < kActivationMinimum ? 0.0f : kByteLimit / largest;
  const __m256 factor = _mm256_set1_ps(inverse);
  const __m256i first = quantise16(x, factor), second = quantise16(x + 16, factor);
  store(to.values, first);
  store(to.values + 16, second);
  store(to.codes, _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xd8));
  const int32_t first_sum = sum_of(first), second_sum = sum_of(second);
  to.nibble_start = -8 * (first_sum + second_sum) & 0xffff;
  to.facts = ByteGroupFacts(inverse == 0.0f ? 0.0f : largest / kByteLimit, first_sum, second_sum);
  return true;
}

}  // namespace

void prepare_byte_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const ByteTiles256 layout(rows, k);
  WideByteGroup* const to = layout.row(prepared, row);
  bool finite = true;
  for (int64_t g = 0; g < layout.groups; ++g) {
    const int64_t left = k - g * kByteGroup;
    float last[kByteGroup] = {};
    const float* from = x + g * kByteGroup;
    if (left < kByteGroup) {
      if (left > 0) std::memcpy(last, from, static_cast<size_t>(left) * sizeof(float));
      from = last;
    }
    finite = write_group(from, to[g * layout.height]) && finite;
  }
  for (int64_t g = 0; !finite && g < layout.groups; ++g) to[g * layout.height] = broken_group<WideByteGroup>();
}

}  // namespace octavo
