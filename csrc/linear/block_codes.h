// Decoders of the GGUF block types into codes and float scales per group, for pack_avx2.cpp only.
//
// Symmetric kinds: value = scale * (code - offset), with the offset of code_range() and a scale per group. Affine kinds: value =
// scale * code + offset, both per group.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "linear/formats.h"

namespace octavo {
namespace {

inline float half_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return _cvtsh_ss(bits);
}

// Where a block decoder writes: codes of the block, and the scales of its groups.
struct Groups {
  uint8_t* codes;
  float* scale;
  float* offset;
};

inline void decode_q8_0(const uint8_t* b, const Groups& to) {
  to.scale[0] = half_at(b);
  const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 2));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.codes), _mm256_xor_si256(q, _mm256_set1_epi8(-128)));
}

inline void decode_nibbles(const uint8_t* qs, uint8_t* codes) {
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(qs)), low = _mm_set1_epi8(15);
  __m128i* const out = reinterpret_cast<__m128i*>(codes);
  _mm_storeu_si128(out, _mm_and_si128(both, low));
  _mm_storeu_si128(out + 1, _mm_and_si128(_mm_srli_epi16(both, 4), low));
}

inline void decode_q4_0(const uint8_t* b, const Groups& to) {
  to.scale[0] = half_at(b);
  decode_nibbles(b + 2, to.codes);
}

inline void decode_q4_1(const uint8_t* b, const Groups& to) {
  to.scale[0] = half_at(b);
  to.offset[0] = half_at(b + 2);
  decode_nibbles(b + 4, to.codes);
}

// Adds the fifth bits: bit j of `qh` belongs to code j.
inline void add_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, qh, 4);
  for (int j = 0; j < 32; ++j) codes[j] = static_cast<uint8_t>(codes[j] | (((bits >> j) & 1) << 4));
}

inline void decode_q5_0(const uint8_t* b, const Groups& to) {
  to.scale[0] = half_at(b);
  decode_nibbles(b + 6, to.codes);
  add_fifth_bits(b + 2, to.codes);
  for (int j = 0; j < 32; ++j) to.codes[j] = static_cast<uint8_t>(to.codes[j] + 32 - 16);
}

inline void decode_q5_1(const uint8_t* b, const Groups& to) {
  to.scale[0] = half_at(b);
  to.offset[0] = half_at(b + 2);
  decode_nibbles(b + 8, to.codes);
  add_fifth_bits(b + 4, to.codes);
}

inline void decode_q2_k(const uint8_t* b, const Groups& to) {
  const uint8_t* const qs = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int g = 0; g < 16; ++g) {
    to.scale[g] = d * static_cast<float>(b[g] & 15);
    to.offset[g] = -(dmin * static_cast<float>(b[g] >> 4));
    const uint8_t* const q = qs + 32 * (g / 8) + 16 * (g % 2);
    const int shift = 2 * (g % 8 / 2);
    for (int l = 0; l < 16; ++l) to.codes[16 * g + l] = (q[l] >> shift) & 3;
  }
}

// The 16 6-bit scales of a Q3_K block.
inline void unpack_q3_k_scales(const uint8_t* s, int8_t* scales) {
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    const int high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
    scales[g] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
}

inline void decode_q3_k(const uint8_t* b, const Groups& to) {
  const uint8_t *const hmask = b, *const qs = b + 32;
  const float d = half_at(b + 108);
  int8_t scales[16];
  unpack_q3_k_scales(b + 96, scales);
  for (int g = 0; g < 16; ++g) {
    to.scale[g] = d * static_cast<float>(scales[g]);
    const uint8_t *const q = qs + 32 * (g / 8) + 16 * (g % 2), *const h = hmask + 16 * (g % 2);
    const int shift = 2 * (g % 8 / 2), bit = g / 2;
    for (int l = 0; l < 16; ++l)
      to.codes[16 * g + l] = static_cast<uint8_t>(32 + ((q[l] >> shift) & 3) - (((h[l] >> bit) & 1) ? 0 : 4));
  }
}

// Scales and minima of the 8 groups of a Q4_K or Q5_K block.
inline void decode_k_scales(const uint8_t* b, const Groups& to) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t* const s = b + 4;
  for (int j = 0; j < 8; ++j) {
    const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
    const int minimum = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
    to.scale[j] = d * static_cast<float>(scale);
    to.offset[j] = -(dmin * static_cast<float>(minimum));
  }
}

inline void decode_q4_k(const uint8_t* b, const Groups& to) {
  decode_k_scales(b, to);
  const uint8_t* const qs = b + 16;
  for (int pair = 0; pair < 4; ++pair)
    for (int l = 0; l < 32; ++l) {
      to.codes[64 * pair + l] = qs[32 * pair + l] & 15;
      to.codes[64 * pair + 32 + l] = qs[32 * pair + l] >> 4;
    }
}

inline void decode_q5_k(const uint8_t* b, const Groups& to) {
  decode_k_scales(b, to);
  const uint8_t *const qh = b + 16, *const qs = b + 48;
  for (int pair = 0; pair < 4; ++pair)
    for (int l = 0; l < 32; ++l) {
      const uint8_t q = qs[32 * pair + l], h = qh[l];
      to.codes[64 * pair + l] = static_cast<uint8_t>((q & 15) | (((h >> (2 * pair)) & 1) << 4));
      to.codes[64 * pair + 32 + l] = static_cast<uint8_t>((q >> 4) | (((h >> (2 * pair + 1)) & 1) << 4));
    }
}

inline void decode_q6_k(const uint8_t* b, const Groups& to) {
  const float d = half_at(b + 208);
  const int8_t* const scales = reinterpret_cast<const int8_t*>(b + 192);
  for (int g = 0; g < 16; ++g) to.scale[g] = d * static_cast<float>(scales[g]);
  for (int part = 0; part < 8; ++part) {  // 32 codes each
    const uint8_t *const ql = b + 64 * (part / 4) + 32 * (part % 2), *const qh = b + 128 + 32 * (part / 4);
    const int nibble = part % 4 / 2 * 4, shift = 2 * (part % 4);
    for (int l = 0; l < 32; ++l)
      to.codes[32 * part + l] =
          static_cast<uint8_t>(((ql[l] >> nibble) & 15) | (((qh[l] >> shift) & 3) << 4));
  }
}

// The largest |code| of a symmetric kind, the largest code of an affine one; the group its scales cover; and what was added to
// a symmetric kind's codes.
struct CodeRange {
  int maximum, group;
  bool affine;
  int offset = 0;
};
inline CodeRange code_range(TensorKind kind) {
  switch (kind) {
    case TensorKind::kQ4_0: return {8, 32, false, 8};
    case TensorKind::kQ8_0: return {128, 32, false, 128};
    case TensorKind::kQ5_0: return {16, 32, false, 32};
    case TensorKind::kQ3_K: return {4, 16, false, 32};
    case TensorKind::kQ6_K: return {32, 16, false, 32};
    case TensorKind::kQ4_1:
    case TensorKind::kQ4_K: return {15, 32, true};
    case TensorKind::kQ5_1:
    case TensorKind::kQ5_K: return {31, 32, true};
    case TensorKind::kQ2_K: return {3, 16, true};
    default: return {0, 0, false};
  }
}

// Decodes a row of k values.
inline void decode_row(TensorKind kind, const uint8_t* raw, int64_t k, const Groups& to) {
  using Decoder = void (*)(const uint8_t*, const Groups&);
  Decoder decoder = nullptr;
  switch (kind) {
    case TensorKind::kQ8_0: decoder = decode_q8_0; break;
    case TensorKind::kQ4_0: decoder = decode_q4_0; break;
    case TensorKind::kQ4_1: decoder = decode_q4_1; break;
    case TensorKind::kQ5_0: decoder = decode_q5_0; break;
    case TensorKind::kQ5_1: decoder = decode_q5_1; break;
    case TensorKind::kQ2_K: decoder = decode_q2_k; break;
    case TensorKind::kQ3_K: decoder = decode_q3_k; break;
    case TensorKind::kQ4_K: decoder = decode_q4_k; break;
    case TensorKind::kQ5_K: decoder = decode_q5_k; break;
    case TensorKind::kQ6_K: decoder = decode_q6_k; break;
    default: return;
  }
  const int64_t values = kind_block_values(kind), bytes = kind_block_bytes(kind), group = code_range(kind).group;
  for (int64_t block = 0; block < k / values; ++block) {
    const int64_t first = block * values;
    decoder(raw + block * bytes, {to.codes + first, to.scale + first / group, to.offset + first / group});
  }
}

}  // namespace
}  // namespace octavo
