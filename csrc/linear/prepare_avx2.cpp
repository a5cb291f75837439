#include <immintrin.h>

#include <cstring>
#include <limits>

#include "linear/kernels.h"

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

// Eight activations as integers; `count` of them are there, the others are zeros.
void quantise8(const float* x, int64_t count, float inverse, int32_t* a) {
  float values[8] = {};
  if (count < 8) {
    for (int64_t i = 0; i < count; ++i) values[i] = x[i];
    x = values;
  }
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(inverse));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(a), _mm256_cvtps_epi32(scaled));
}

// The sums of one plane over groups of 16 and of 32, in the forms of VectorRow.
void write_sums(const VectorRow& layout, uint8_t* to, int low) {
  const int8_t* const plane = layout.plane(to, low);
  int32_t* const shifted16 = reinterpret_cast<int32_t*>(to + layout.sums_offset(16, false, low));
  int32_t* const negated16 = reinterpret_cast<int32_t*>(to + layout.sums_offset(16, true, low));
  int32_t* const shifted32 = reinterpret_cast<int32_t*>(to + layout.sums_offset(32, false, low));
  int32_t* const negated32 = reinterpret_cast<int32_t*>(to + layout.sums_offset(32, true, low));
  for (int64_t g = 0; g < layout.kp / 16; ++g) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += plane[16 * g + i];
    shifted16[g] = sum * 65536;
    negated16[g] = sum * -128;
  }
  for (int64_t g = 0; g < layout.kp / 32; ++g) {
    shifted32[g] = shifted16[2 * g] + shifted16[2 * g + 1];
    negated32[g] = negated16[2 * g] + negated16[2 * g + 1];
  }
}

}  // namespace

void prepare_vector_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const VectorRow layout(k);
  uint8_t* const to = prepared + row_scales_bytes(rows) + row * layout.bytes();
  const uint32_t bits = largest_bits(x, k);
  float largest, inverse = 0.0f, scale = 0.0f;
  std::memcpy(&largest, &bits, 4);
  const bool finite = bits < 0x7f800000u;
  if (finite && largest >= kActivationMinimum) {
    inverse = kActivationLimit / largest;
    scale = largest / kActivationLimit;
  }
  if (!finite) scale = std::numeric_limits<float>::quiet_NaN();
  reinterpret_cast<float*>(prepared)[row] = scale;
  if (inverse == 0.0f) {
    std::memset(to, 0, static_cast<size_t>(layout.bytes()));
    return;
  }
  for (int64_t i = 0; i < layout.kp; i += 8) {
    int32_t a[8] = {};
    if (i < k) quantise8(x + i, k - i, inverse, a);
    for (int j = 0; j < 8; ++j) {
      const int32_t low = ((a[j] + 64) & 127) - 64;
      to[i + j] = static_cast<uint8_t>((a[j] - low) >> 7);
      to[layout.kp + i + j] = static_cast<uint8_t>(low);
    }
  }
  write_sums(layout, to, 0);
  write_sums(layout, to, 1);
}

}  // namespace octavo
