#include "linear/bf16_rows.h"
#include "linear/prepare_avx512.h"

#include <cstring>

#include "common/prefetch.h"

namespace octavo {

namespace {

// The high bytes and the low bytes of 64 integers, in order.
struct Planes {
  __m512i high, low;
};

Planes split_bytes(const __m512i (&values)[4]) {
  // Packing goes by 128-bit lanes: first all lanes' first quarters, and so on.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i first = _mm512_packs_epi32(values[0], values[1]), second = _mm512_packs_epi32(values[2], values[3]);
  const __m512i low = _mm512_set1_epi16(0x00ff);
  const __m512i highs = _mm512_packs_epi16(_mm512_srai_epi16(first, 8), _mm512_srai_epi16(second, 8));
  const __m512i lows = _mm512_packus_epi16(_mm512_and_si512(first, low), _mm512_and_si512(second, low));
  return {_mm512_permutexvar_epi32(order, highs), _mm512_permutexvar_epi32(order, lows)};
}

}  // namespace

void prepare_integer_tile_row_amx(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const int64_t kp = padded_k(k);
  uint8_t* to = prepared + row_scales_bytes(rows) + row / kTileRows * integer_tile_bytes(k) + row % kTileRows * 64;
  // The lines of the last inputs are in the second cache, or another core has read them: not to be waited for one by one.
  for (int64_t line = 0; line < kp / 64 * 2; ++line) prefetch_to_write(to + line * kTileBytes);
  const RowScale scale = row_scale(x, k);
  reinterpret_cast<float*>(prepared)[row] = scale.scale;
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  const bool zeros = scale.inverse == 0.0f;  // x may hold infinities: not to be multiplied
  for (int64_t i = 0; i < kp; i += 64, to += 2 * kTileBytes) {
    __m512i values[4];
    for (int part = 0; part < 4; ++part)
      values[part] = zeros ? _mm512_setzero_si512() : quantise16(x, i + 16 * part, k, inverse);
    const Planes planes = split_bytes(values);
    _mm512_storeu_si512(to, planes.high);
    _mm512_storeu_si512(to + kTileBytes, planes.low);
  }
}

void prepare_bf16_tile_row_amx(const float* x, int64_t k, int64_t row, uint8_t* prepared) {
  round_row(x, k, prepared + row / kTileRows * bf16_tile_bytes(k) + row % kTileRows * 64, 1024);
}

}  // namespace octavo
