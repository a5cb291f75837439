// Rows of floats as integers with one scale, and their rotation: internal linkage, one copy per including file.
#pragma once

#include <emmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace octavo {
namespace {

constexpr float kTiniest = 1e-30f;  // rows whose magnitudes are all smaller count as zeros

// codes[0..size) * result ~ x, rounded to nearest even, the largest magnitude being kMax; codes[size..padded) are 0. A row
// that is not finite gets zeros and the scale NaN.
template <class Code, int kMax>
inline float encode_scaled(const float* x, int size, int padded, Code* codes) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which the low bits then hold
  uint32_t largest_bits = 0;             // of the magnitudes; those of what is not finite are above all others
  for (int d = 0; d < size; ++d) {
    uint32_t bits;
    std::memcpy(&bits, x + d, sizeof bits);
    largest_bits = std::max(largest_bits, bits & 0x7fffffffu);
  }
  float largest;
  std::memcpy(&largest, &largest_bits, sizeof largest);
  const bool finite = largest_bits < 0x7f800000u;
  if (!finite || largest < kTiniest) {
    std::memset(codes, 0, padded * sizeof(Code));
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = kMax / largest;
  for (int d = 0; d < size; ++d) {
    const float shifted = x[d] * inverse + kRound;
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    codes[d] = static_cast<Code>(bits);
  }
  for (int d = size; d < padded; ++d) codes[d] = 0;
  return largest / kMax;
}

// The size of the blocks that rotate() mixes: the largest power of two that divides a row's length.
constexpr int rotation_block(int size) { return size & -size; }

// The Walsh-Hadamard transform of each block of a row, in place and not normed: dot products of two rotated rows are
// rotation_block(size) times those of the rows, and a single large number is spread over its block, so that it does not
// take the others' resolution away.
inline void rotate(float* x, int size) {
  const int block = rotation_block(size);
  if (block < 4) {
    for (int i = 0; block == 2 && i < size; i += 2) {
      const float a = x[i], b = x[i + 1];
      x[i] = a + b;
      x[i + 1] = a - b;
    }
    return;
  }
  int half = block / 2;
  for (; half >= 8; half /= 4)  // two steps at once: halves of `half` and of half / 2
    for (int i = 0; i < size; i += 2 * half)
      for (float* at = x + i; at < x + i + half / 2; at += 4) {
        const __m128 a = _mm_loadu_ps(at), b = _mm_loadu_ps(at + half / 2);
        const __m128 c = _mm_loadu_ps(at + half), d = _mm_loadu_ps(at + half / 2 * 3);
        const __m128 ac = _mm_add_ps(a, c), bd = _mm_add_ps(b, d), a_c = _mm_sub_ps(a, c), b_d = _mm_sub_ps(b, d);
        _mm_storeu_ps(at, _mm_add_ps(ac, bd));
        _mm_storeu_ps(at + half / 2, _mm_sub_ps(ac, bd));
        _mm_storeu_ps(at + half, _mm_add_ps(a_c, b_d));
        _mm_storeu_ps(at + half / 2 * 3, _mm_sub_ps(a_c, b_d));
      }
  for (int i = 0; half == 4 && i < size; i += 8) {
    const __m128 a = _mm_loadu_ps(x + i), b = _mm_loadu_ps(x + i + 4);
    _mm_storeu_ps(x + i, _mm_add_ps(a, b));
    _mm_storeu_ps(x + i + 4, _mm_sub_ps(a, b));
  }
  const __m128 minus_high = _mm_setr_ps(0.0f, 0.0f, -0.0f, -0.0f), minus_odd = _mm_setr_ps(0.0f, -0.0f, 0.0f, -0.0f);
  for (int i = 0; i < size; i += 4) {  // halves of 2 and 1
    __m128 v = _mm_loadu_ps(x + i);
    v = _mm_add_ps(_mm_movelh_ps(v, v), _mm_xor_ps(_mm_movehl_ps(v, v), minus_high));
    v = _mm_add_ps(_mm_shuffle_ps(v, v, 0xa0), _mm_xor_ps(_mm_shuffle_ps(v, v, 0xf5), minus_odd));
    _mm_storeu_ps(x + i, v);
  }
}

}  // namespace
}  // namespace octavo
