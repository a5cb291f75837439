// Tiles of zeros: what they hold makes no difference to the time. Reading and float32 products are those of AVX512.
#include "common/tile_config.h"
#include "limits/limits.h"

namespace octavo {

extern const LimitLoops kLimitLoopsAvx512;

namespace {

constexpr int kTileProducts = 4;  // of one round: two rows by two columns of tiles, as the kernels have them

float stored_sum() {
  alignas(64) float sums[256];
  _tile_stored(0, sums, 64);
  order_memory();
  return sums[0];
}

void zero_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
}

float int8_products(int64_t rounds) {
  const TileConfig config;
  zero_tiles();
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  return stored_sum();
}

float bf16_products(int64_t rounds) {
  const TileConfig config;
  zero_tiles();
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return stored_sum();
}

uint64_t read(const void* memory, int64_t bytes) { return kLimitLoopsAvx512.read(memory, bytes); }

float f32_products(int64_t rounds) { return kLimitLoopsAvx512.products[2].run(rounds); }

}  // namespace

extern const LimitLoops kLimitLoopsAmx;
const LimitLoops kLimitLoopsAmx{read,
                                {{int8_products, kTileProducts * 2 * 16 * 16 * 64},
                                 {bf16_products, kTileProducts * 2 * 16 * 16 * 32},
                                 {f32_products, 12 * 32}}};

}  // namespace octavo
