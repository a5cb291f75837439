#include <immintrin.h>

#include "attention/kv_writer_impl.h"

namespace octavo {
namespace {

// Sixteen floats from x on, of which the first `count` are given and the others 0, as bf16 in the upper halves; a lane's bit
// is set in `poisoned` where that is not finite.
inline __m512i to_bf16_halves(const float* x, int count, __mmask16& poisoned) {
  const __mmask16 given = count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1u;
  const __m512 value = _mm512_maskz_loadu_ps(given, x);
  const __m512i bits = _mm512_castps_si512(value), least = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, least), _mm512_and_si512(_mm512_srli_epi32(bits, 16), one));
  rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  poisoned |= _mm512_cmpeq_epi32_mask(_mm512_and_si512(rounded, exponent), exponent);
  return rounded;
}

// The upper halves of 32 lanes.
alignas(64) constexpr uint16_t kUpperHalves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                   33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

// True when a number in the row is not finite: then zeros are stored.
inline bool store_bf16_v(const float* x, int head_dim, const TokenUnits& units) {
  __m512i halves[512 / 16];
  __mmask16 poisoned = 0;
  for (int d = 0; d < units.padded; d += 16) halves[d / 16] = to_bf16_halves(x + d, head_dim - d, poisoned);
  // Of a row only this token's half of the pairs: another thread may write the other one.
  const int odd = units.token % 2;
  const __mmask32 stored = 0x55555555u << odd;
  const __mmask16 kept = poisoned == 0 ? 0xffff : 0;
  const __m128i down = _mm_cvtsi32_si128(odd == 0 ? 16 : 0);
  char* row = units.v + units.token / 2 * 64;
  for (int d = 0; d < units.padded; d += 16, row += units.size * 32)
    _mm512_mask_storeu_epi16(row, stored, _mm512_maskz_srl_epi32(kept, halves[d / 16], down));
  return poisoned != 0;
}

inline void store_bf16_k(const float* x, int head_dim, bool poisoned, const TokenUnits& units) {
  const int width = units.width();
  __mmask16 unused = 0;
  char* pair = units.k + (units.token / width * units.padded * width + units.token % width * 2) * 2;
  for (int d = 0; d < units.padded; d += 32) {
    const __m512i first = to_bf16_halves(x + d, head_dim - d, unused);
    const __m512i second = to_bf16_halves(x + d + 16, head_dim - d - 16, unused);
    alignas(64) uint32_t pairs[16];
    _mm512_store_si512(pairs, _mm512_permutex2var_epi16(first, _mm512_load_si512(kUpperHalves), second));
    if (poisoned && d == 0) pairs[0] = (pairs[0] & 0xffff0000u) | Bf16Store::kNan;
    for (int i = 0; i < 16; ++i, pair += width * 4) std::memcpy(pair, pairs + i, sizeof pairs[i]);
  }
}

// write_token<Bf16Store> by hand: the same bytes.
void write_bf16_token(const KvLayout& layout, const TokenPlace& at, const float* k, const float* v) {
  TokenUnits units(layout, at);
  for (int head = at.heads.first; head < at.heads.end; ++head, units.next_head()) {
    const bool poisoned = store_bf16_v(v + head * at.head_dim, at.head_dim, units);
    store_bf16_k(k + head * at.head_dim, at.head_dim, poisoned, units);
  }
}

}  // namespace

extern const KvWriter kKvWriterAvx512;
const KvWriter kKvWriterAvx512{{write_token<F32Store>, write_bf16_token, write_scaled_token}, fetch_token};

}  // namespace octavo
