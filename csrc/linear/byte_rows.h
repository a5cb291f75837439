// Prepared rows of kA8: per 32 inputs 8-bit codes with a scale of their own.
//
// A group of 32 inputs makes a row's sum fma((float)v, scale, sum), in the order of k, where v = sum((e*q + z) * code)
// is exact in int32. The result is sum * D. So all instruction sets, numbers of rows and threads give the same bits.
#pragma once

#include <cstdint>
#include <limits>

#include "linear/kernels.h"

namespace octavo {

constexpr int kByteGroup = 32;        // inputs with one scale
constexpr float kByteLimit = 127.0f;  // of |code|

// What kernels need of a group besides its codes. Sums are those of the codes of its first and its second half.
struct ByteGroupFacts {
  float scale = 0.0f;
  int32_t nibbles = 32768;    // 65536 * sum + 32768 - 8 * sum, of both halves: see byte_avx512.cpp
  int32_t bytes[2] = {0, 0};  // -128 * sum, of each half: what 8-bit codes' offset adds
  int16_t sums[2] = {0, 0};

  ByteGroupFacts() = default;
  ByteGroupFacts(float group_scale, int32_t first, int32_t second)
      : scale(group_scale),
        nibbles((first + second) * 65528 + 32768),
        bytes{-128 * first, -128 * second},
        sums{static_cast<int16_t>(first), static_cast<int16_t>(second)} {}
};

// A group for AVX512.
struct ByteGroup {
  int8_t codes[kByteGroup];
  ByteGroupFacts facts;
};

// A group for AVX2, which multiplies 8-bit weights as 16-bit integers.
struct WideByteGroup {
  int8_t codes[kByteGroup];
  int16_t values[kByteGroup];
  int32_t nibble_start = 0;  // what 16-bit sums over symmetric 4-bit codes begin with: (-8 * sum) & 0xffff
  ByteGroupFacts facts;
};

// A group of a row that holds an infinity or a NaN.
template <class Group>
inline Group broken_group() {
  Group group{};
  group.facts.scale = std::numeric_limits<float>::quiet_NaN();
  return group;
}

// Groups lie in tiles of equally many rows, of which the last may lack some: per tile, per group, per row.
template <class Group, int MostRows>
struct ByteTiles {
  static constexpr int kMostRows = MostRows;  // whose sums stay in registers
  int64_t groups, rows, count, height;
  ByteTiles(int64_t all_rows, int64_t k)
      : groups(padded_k(k) / kByteGroup),
        rows(all_rows),
        count(rows > 0 ? (rows + kMostRows - 1) / kMostRows : 1),
        height((rows + count - 1) / count) {}
  int64_t tile_bytes() const { return height * groups * static_cast<int64_t>(sizeof(Group)); }
  int64_t bytes() const { return count * tile_bytes(); }
  int64_t rows_of(int64_t tile) const { return rows - tile * height < height ? rows - tile * height : height; }
  // The first group of a row; the next one lies `height` further on.
  Group* row(void* prepared, int64_t row) const {
    return static_cast<Group*>(prepared) + row / height * height * groups + row % height;
  }
  const Group* tile(const void* prepared, int64_t tile) const {
    return static_cast<const Group*>(prepared) + tile * height * groups;
  }
};
using ByteTiles512 = ByteTiles<ByteGroup, 16>;
using ByteTiles256 = ByteTiles<WideByteGroup, 4>;

}  // namespace octavo
