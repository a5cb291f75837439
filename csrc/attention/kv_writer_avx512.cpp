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

// Sixteen dim pairs of a row of K from x on, of which the first `count` numbers are given.
inline __m512i to_bf16_pairs(const float* x, int count) {
  __mmask16 unused = 0;
  const __m512i first = to_bf16_halves(x, count, unused), second = to_bf16_halves(x + 16, count - 16, unused);
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(kUpperHalves), second);
}

// The first number of a row becomes NaN.
inline __m512i with_nan(__m512i pairs, bool wanted) {
  return _mm512_mask_mov_epi16(pairs, wanted ? 1 : 0, _mm512_set1_epi16(Bf16Store::kNan));
}

// A row of V in the upper halves; true when a number in it is not finite.
inline bool load_v(const float* x, int head_dim, int padded, __m512i* halves) {
  __mmask16 poisoned = 0;
  for (int d = 0; d < padded; d += 16) halves[d / 16] = to_bf16_halves(x + d, head_dim - d, poisoned);
  return poisoned != 0;
}

constexpr __mmask32 kFirsts = 0x55555555, kSeconds = 0xaaaaaaaa;  // the tokens of a pair

// write_token<Bf16Store> by hand: the same bytes.
void write_bf16_token(const KvLayout& layout, const TokenPlace& at, const KvRows& rows) {
  TokenUnits units(layout, at);
  const int width = units.width(), odd = units.token % 2;
  const __m128i down = _mm_cvtsi32_si128(odd == 0 ? 16 : 0);
  __m512i halves[512 / 16];
  for (int head = at.heads.first; head < at.heads.end; ++head, units.next_head()) {
    const bool poisoned = load_v(rows.v + head * at.head_dim, at.head_dim, units.padded, halves);
    const __mmask16 kept = poisoned ? 0 : 0xffff;
    char* v = units.v + units.token / 2 * 64;
    for (int d = 0; d < units.padded; d += 16, v += units.size * 32)  // the pair's other token may be another thread's
      _mm512_mask_storeu_epi16(v, odd == 0 ? kFirsts : kSeconds, _mm512_maskz_srl_epi32(kept, halves[d / 16], down));
    const float* x = rows.k + head * at.head_dim;
    char* k = units.k + units.token / width * units.padded * width * 2 + units.token % width * 4;
    for (int d = 0; d < units.padded; d += 32) {
      alignas(64) uint32_t pairs[16];
      _mm512_store_si512(pairs, with_nan(to_bf16_pairs(x + d, at.head_dim - d), poisoned && d == 0));
      for (int i = 0; i < 16; ++i, k += width * 4) std::memcpy(k, pairs + i, sizeof pairs[i]);
    }
  }
}

// Sixteen rows of sixteen lanes: lane j of row i and lane i of row j change places.
inline void transpose(__m512i (&rows)[16]) {
  __m512i part[16];
  for (int i = 0; i < 16; i += 2) {
    part[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    part[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      rows[i + 2 * j] = _mm512_unpacklo_epi64(part[i + j], part[i + j + 2]);
      rows[i + 2 * j + 1] = _mm512_unpackhi_epi64(part[i + j], part[i + j + 2]);
    }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; ++j) {
      part[i + j] = _mm512_shuffle_i32x4(rows[i + j], rows[i + j + 4], 0x88);
      part[i + j + 4] = _mm512_shuffle_i32x4(rows[i + j], rows[i + j + 4], 0xdd);
    }
  for (int j = 0; j < 8; ++j) {
    rows[j] = _mm512_shuffle_i32x4(part[j], part[j + 8], 0x88);
    rows[j + 8] = _mm512_shuffle_i32x4(part[j], part[j + 8], 0xdd);
  }
}

// Sixteen tokens of V, a pair after the other. Returns a bit for each that is not finite.
inline uint32_t write_bf16_v(const float* x, int64_t stride, int head_dim, const TokenUnits& units) {
  uint32_t poisoned = 0;
  __m512i firsts[512 / 16], seconds[512 / 16];
  for (int token = 0; token < kKvGroup; token += 2, x += 2 * stride) {
    const bool first = load_v(x, head_dim, units.padded, firsts), second = load_v(x + stride, head_dim, units.padded, seconds);
    poisoned |= ((first ? 1u : 0u) | (second ? 2u : 0u)) << token;
    const __mmask32 kept = (first ? 0 : kFirsts) | (second ? 0 : kSeconds);
    char* v = units.v + (units.token + token) / 2 * 64;
    for (int d = 0; d < units.padded; d += 16, v += units.size * 32) {
      const __m512i both = _mm512_mask_mov_epi16(_mm512_srli_epi32(firsts[d / 16], 16), kSeconds, seconds[d / 16]);
      _mm512_storeu_si512(v, _mm512_maskz_mov_epi16(kept, both));
    }
  }
  return poisoned;
}

// Whole cache lines instead of a few bytes in each.
void write_bf16_group(const KvLayout& layout, const TokenPlace& at, const KvRows& rows) {
  TokenUnits units(layout, at);
  for (int head = at.heads.first; head < at.heads.end; ++head, units.next_head()) {
    const uint32_t poisoned = write_bf16_v(rows.v + head * at.head_dim, rows.v_stride, at.head_dim, units);
    char* k = units.k + units.token * units.padded * 2;
    for (int d = 0; d < units.padded; d += 32) {
      const float* x = rows.k + head * at.head_dim + d;
      __m512i pairs[kKvGroup];
      for (int token = 0; token < kKvGroup; ++token, x += rows.k_stride)
        pairs[token] = with_nan(to_bf16_pairs(x, at.head_dim - d), d == 0 && (poisoned >> token & 1u) != 0);
      transpose(pairs);
      for (int i = 0; i < 16; ++i, k += 64) _mm512_storeu_si512(k, pairs[i]);
    }
  }
}

}  // namespace

extern const KvWriter kKvWriterAvx512;
const KvWriter kKvWriterAvx512{{write_token<F32Store>, write_bf16_token, write_scaled_token}, write_bf16_group, fetch_token};

}  // namespace octavo
