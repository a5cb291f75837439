// AMX tiles in ordinary code, to test the AMX kernels where the instructions are missing: CMake's OCTAVO_EMULATED_AMX
// includes this before everything else in *_amx.cpp, where it takes the place of the intrinsics.
//
// It follows the operation sections of Intel's manual. What a processor refuses ends the process with a message. The
// compiler sees all reads and writes here: an order_memory() that real tiles lack does not show.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace octavo::emulated_tiles {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

struct Tile {
  alignas(64) uint8_t bytes[kRows][kRowBytes];
  int rows, row_bytes;  // 0 where not configured
};

// The registers of a thread.
inline thread_local Tile registers[kTiles];

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "emulated AMX: %s\n", what);
  std::abort();
}

inline void release() { std::memset(registers, 0, sizeof registers); }

inline void configure(const void* config) {
  const uint8_t* const from = static_cast<const uint8_t*>(config);
  require(from[0] == 1 && from[1] == 0, "the palette is not 1, or the first row not 0");
  for (int i = 2; i < 64; ++i)
    require((i >= 16 && i < 32) || (i >= 48 && i < 56) || from[i] == 0, "reserved bytes of a configuration are not 0");
  release();
  for (int i = 0; i < kTiles; ++i) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, from + 16 + 2 * i, sizeof row_bytes);
    const int rows = from[48 + i];
    require(rows <= kRows && row_bytes <= kRowBytes && (rows == 0) == (row_bytes == 0), "a tile's shape is impossible");
    registers[i].rows = rows;
    registers[i].row_bytes = row_bytes;
  }
}

inline Tile& configured(int tile) {
  require(registers[tile].rows > 0 && registers[tile].row_bytes % 4 == 0, "a tile is used that is not configured");
  return registers[tile];
}

inline void zero(int tile) { std::memset(configured(tile).bytes, 0, sizeof Tile::bytes); }

inline void load(int tile, const void* base, int64_t stride) {
  zero(tile);
  Tile& to = registers[tile];
  for (int row = 0; row < to.rows; ++row)
    std::memcpy(to.bytes[row], static_cast<const uint8_t*>(base) + row * stride, static_cast<size_t>(to.row_bytes));
}

inline void store(int tile, void* base, int64_t stride) {
  const Tile& from = configured(tile);
  for (int row = 0; row < from.rows; ++row)
    std::memcpy(static_cast<uint8_t*>(base) + row * stride, from.bytes[row], static_cast<size_t>(from.row_bytes));
}

// The operands of to += a * b.
struct Product {
  Tile &to, &a, &b;
  Product(int to_tile, int a_tile, int b_tile)
      : to(configured(to_tile)), a(configured(a_tile)), b(configured(b_tile)), rows(to.rows), steps(b.rows) {
    require(to_tile != a_tile && to_tile != b_tile && a_tile != b_tile, "a tile is twice in a product");
    require(to.rows == a.rows && to.row_bytes == b.row_bytes && a.row_bytes == 4 * b.rows, "shapes do not match");
  }
  const int rows, steps;
  __m512i input(int row, int step) const {  // to every lane
    int32_t four_bytes;
    std::memcpy(&four_bytes, a.bytes[row] + 4 * step, sizeof four_bytes);
    return _mm512_set1_epi32(four_bytes);
  }
  __m512i weights(int step) const { return _mm512_load_si512(b.bytes[step]); }
};

// The even or the odd bytes as 16-bit integers.
template <bool kSigned, bool kOdd>
inline __m512i half_of_bytes(__m512i x) {
  if (!kOdd) x = _mm512_slli_epi16(x, 8);
  return kSigned ? _mm512_srai_epi16(x, 8) : _mm512_srli_epi16(x, 8);
}

template <bool kSignedA, bool kSignedB>
inline void multiply_bytes(int to, int a, int b) {
  const Product product(to, a, b);
  for (int step = 0; step < product.steps; ++step) {
    const __m512i weights = product.weights(step);
    const __m512i even = half_of_bytes<kSignedB, false>(weights), odd = half_of_bytes<kSignedB, true>(weights);
    for (int row = 0; row < product.rows; ++row) {
      const __m512i input = product.input(row, step);
      const __m512i sum = _mm512_add_epi32(_mm512_madd_epi16(half_of_bytes<kSignedA, false>(input), even),
                                           _mm512_madd_epi16(half_of_bytes<kSignedA, true>(input), odd));
      uint8_t* const at = product.to.bytes[row];
      _mm512_store_si512(at, _mm512_add_epi32(_mm512_load_si512(at), sum));
    }
  }
}

// Denormals to 0.
inline __m512 flushed(__m512 x) { return _mm512_maskz_mov_ps(_knot_mask16(_mm512_fpclass_ps_mask(x, 0x20)), x); }

// sum + a * b for the even or the odd elements, the others being taken as zeros: rounded once, denormals to 0.
template <bool kOdd>
inline __m512 add_half_of_pairs(__m512 sum, __m512i a, __m512i b) {
  const __mmask32 half = kOdd ? 0xaaaaaaaau : 0x55555555u;
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_maskz_mov_epi16(half, a), (__m512bh)_mm512_maskz_mov_epi16(half, b));
}

// Sums of even elements and of odd ones, which are added only at the end.
inline void multiply_bf16(int to, int a, int b) {
  const Product product(to, a, b);
  for (int row = 0; row < product.rows; ++row) {
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int step = 0; step < product.steps; ++step) {
      even = add_half_of_pairs<false>(even, product.input(row, step), product.weights(step));
      odd = add_half_of_pairs<true>(odd, product.input(row, step), product.weights(step));
    }
    uint8_t* const at = product.to.bytes[row];
    _mm512_store_ps(at, flushed(_mm512_add_ps(_mm512_load_ps(at), flushed(_mm512_add_ps(even, odd)))));
  }
}

}  // namespace octavo::emulated_tiles

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) ::octavo::emulated_tiles::configure(config)
#define _tile_release() ::octavo::emulated_tiles::release()
#define _tile_loadd(tile, base, stride) ::octavo::emulated_tiles::load(tile, base, stride)
#define _tile_stream_loadd(tile, base, stride) ::octavo::emulated_tiles::load(tile, base, stride)
#define _tile_stored(tile, base, stride) ::octavo::emulated_tiles::store(tile, base, stride)
#define _tile_zero(tile) ::octavo::emulated_tiles::zero(tile)
#define _tile_dpbssd(to, a, b) ::octavo::emulated_tiles::multiply_bytes<true, true>(to, a, b)
#define _tile_dpbsud(to, a, b) ::octavo::emulated_tiles::multiply_bytes<true, false>(to, a, b)
#define _tile_dpbusd(to, a, b) ::octavo::emulated_tiles::multiply_bytes<false, true>(to, a, b)
#define _tile_dpbuud(to, a, b) ::octavo::emulated_tiles::multiply_bytes<false, false>(to, a, b)
#define _tile_dpbf16ps(to, a, b) ::octavo::emulated_tiles::multiply_bf16(to, a, b)
