// A tile configuration of AMX kernels: eight tiles of 16 rows of 64 bytes, held for the life of the object.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "common/order_memory.h"

namespace octavo {
namespace {

class TileConfig {
 public:
  TileConfig() {
    alignas(64) uint8_t bytes[64] = {};
    bytes[0] = 1;  // palette
    for (int tile = 0; tile < 8; ++tile) {
      bytes[16 + 2 * tile] = 64;  // bytes of a row, 16 bits each
      bytes[48 + tile] = 16;      // rows
    }
    order_memory();
    _tile_loadconfig(bytes);
  }
  ~TileConfig() { _tile_release(); }
  TileConfig(const TileConfig&) = delete;
  TileConfig& operator=(const TileConfig&) = delete;
};

}  // namespace
}  // namespace octavo
