#include "linear/bf16_rows.h"
#include "linear/prepare_avx512.h"

#include <cstring>

namespace octavo {

void prepare_integer_tile_row_amx(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared) {
  const int64_t kp = padded_k(k);
  uint8_t* to = prepared + row_scales_bytes(rows) + row / kTileRows * integer_tile_bytes(k) + row % kTileRows * 64;
  const RowScale scale = row_scale(x, k);
  reinterpret_cast<float*>(prepared)[row] = scale.scale;
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  const bool zeros = scale.inverse == 0.0f;  // x may hold infinities: not to be multiplied
  for (int64_t i = 0; i < kp; i += 64, to += 2048)
    for (int64_t part = 0; part < 64; part += 16) {
      const __m512i a = zeros ? _mm512_setzero_si512() : quantise16(x, i + part, k, inverse);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + part), _mm512_cvtepi32_epi8(_mm512_srai_epi32(a, 8)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 1024 + part), _mm512_cvtepi32_epi8(a));
    }
}

void prepare_bf16_tile_row_amx(const float* x, int64_t k, int64_t row, uint8_t* prepared) {
  round_row(x, k, prepared + row / kTileRows * bf16_tile_bytes(k) + row % kTileRows * 64, 1024);
}

}  // namespace octavo
