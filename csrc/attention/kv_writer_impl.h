// Writing K and V as plain loops that the compiler vectorises: included once per instruction set, never elsewhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention/kv_writer.h"
#include "attention/scaled_rows.h"
#include "common/prefetch.h"

namespace octavo {
namespace {

uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Round to nearest even; a NaN stays one.
uint16_t to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// How a cache type stores a number, and where the partners of a pair lie in a row of `width` pairs.
struct Bf16Store {
  using Element = uint16_t;
  static constexpr Element kNan = 0x7fc0;
  static Element encode(float x) { return to_bf16(x); }
  static bool non_finite(Element e) { return (e & 0x7f80u) == 0x7f80u; }
  static constexpr int pair_step(int) { return 2; }
  static constexpr int partner_step(int) { return 1; }
};

struct F32Store {
  using Element = uint32_t;
  static constexpr Element kNan = 0x7fc00000u;
  static Element encode(float x) { return float_bits(x); }
  static bool non_finite(Element e) { return (e & 0x7f800000u) == 0x7f800000u; }
  static constexpr int pair_step(int) { return 1; }
  static constexpr int partner_step(int width) { return width; }
};

// Codes that share a scale, which is kept beside them.
struct Int8Store {
  using Element = int8_t;
  static constexpr int pair_step(int) { return 2; }
  static constexpr int partner_step(int) { return 1; }
};

// Encodes a row with its padding; true when a number in it is not finite.
template <class Store>
bool encode_row(const float* x, int head_dim, int padded, typename Store::Element* row) {
  int bad = 0;
  for (int d = 0; d < head_dim; ++d) {
    row[d] = Store::encode(x[d]);
    bad |= Store::non_finite(row[d]);
  }
  for (int d = head_dim; d < padded; ++d) row[d] = 0;
  return bad != 0;
}

// The units of K and V, head by head, in which a token has a row.
struct TokenUnits {
  TokenUnits(const KvLayout& layout, const TokenPlace& at)
      : padded(padded_head_dim(at.head_dim)),
        size(layout.unit),
        token(at.offset % size),
        head_bytes(layout.block_size * layout.row_bytes(padded)),
        k(at.start + at.heads.first * head_bytes + at.offset / size * size * layout.row_bytes(padded)),
        v(k + layout.half_bytes) {}

  // Tokens in a group of K.
  int width() const { return size < 16 ? size : 16; }
  void next_head() { k += head_bytes, v += head_bytes; }

  int padded, size, token;  // token: which one of the units' `size`
  int64_t head_bytes;
  char *k, *v;
};

template <class Store>
void store_k(const typename Store::Element* row, const TokenUnits& units) {
  using Element = typename Store::Element;
  const int width = units.width(), partner = Store::partner_step(width);
  auto* k = reinterpret_cast<Element*>(units.k);
  k += units.token / width * units.padded * width + units.token % width * Store::pair_step(width);
  for (int pair = 0; pair < units.padded / 2; ++pair, k += 2 * width) {
    if (partner == 1) {
      std::memcpy(k, row + 2 * pair, 2 * sizeof(Element));
    } else {
      k[0] = row[2 * pair];
      k[partner] = row[2 * pair + 1];
    }
  }
}

template <class Store>
void store_v(const typename Store::Element* row, const TokenUnits& units) {
  auto* v = reinterpret_cast<typename Store::Element*>(units.v);
  v += units.token / 2 * 32 + units.token % 2 * Store::partner_step(16);
  for (int d = 0; d < units.padded; d += 16, v += units.size * 16)
    for (int i = 0; i < 16; ++i) v[i * Store::pair_step(16)] = row[d + i];
}

template <class Store>
void write_token(const KvLayout& layout, const TokenPlace& at, const KvRows& rows) {
  typename Store::Element row[512];
  TokenUnits units(layout, at);
  for (int head = at.heads.first; head < at.heads.end; ++head, units.next_head()) {
    const bool poisoned = encode_row<Store>(rows.v + head * at.head_dim, at.head_dim, units.padded, row);
    if (poisoned) std::memset(row, 0, sizeof row);
    store_v<Store>(row, units);
    encode_row<Store>(rows.k + head * at.head_dim, at.head_dim, units.padded, row);
    if (poisoned) row[0] = Store::kNan;  // q * NaN = NaN whatever q is: one is enough
    store_k<Store>(row, units);
  }
}

inline void write_scaled_token(const KvLayout& layout, const TokenPlace& at, const KvRows& rows) {
  int8_t row[512];
  float rotated[512];
  TokenUnits units(layout, at);
  const int64_t codes_bytes = int64_t{units.size} * units.padded;
  for (int head = at.heads.first; head < at.heads.end; ++head, units.next_head()) {
    float v_scale = encode_scaled<int8_t, 127>(rows.v + head * at.head_dim, at.head_dim, units.padded, row);
    store_v<Int8Store>(row, units);
    std::memcpy(rotated, rows.k + head * at.head_dim, at.head_dim * sizeof(float));
    rotate(rotated, at.head_dim);
    float k_scale = encode_scaled<int8_t, 127>(rotated, at.head_dim, units.padded, row);
    store_k<Int8Store>(row, units);
    if (std::isnan(v_scale)) {
      k_scale = v_scale;
      v_scale = 0.0f;
    }
    reinterpret_cast<float*>(units.k + codes_bytes)[units.token] = k_scale;
    reinterpret_cast<float*>(units.v + codes_bytes)[units.token] = v_scale;
  }
}

// Asks for the cache lines [first, end).
inline void fetch_lines(const char* first, const char* end) {
  for (; first < end; first += 64) prefetch_far(first);
}

// The lines of a token: in K all those of a group, in V one for every 16 columns.
inline void fetch_token(const KvLayout& layout, const TokenPlace& at) {
  TokenUnits units(layout, at);
  const int64_t row_bytes = 32 * layout.element_bytes, group_bytes = units.width() * units.padded * layout.element_bytes;
  for (int head = at.heads.first; head < at.heads.end; ++head, units.next_head()) {
    const char* k = units.k + units.token / units.width() * group_bytes;
    fetch_lines(k, k + group_bytes);
    const char* v = units.v + units.token / 2 * row_bytes;
    for (int d = 0; d < units.padded; d += 16, v += units.size / 2 * row_bytes) fetch_lines(v, v + row_bytes);
  }
}

}  // namespace
}  // namespace octavo
