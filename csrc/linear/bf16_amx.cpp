// bfloat16 weights with AMX. Each output tile adds over k in one fixed order, whatever the number of rows.
#include "common/prefetch.h"
#include "common/tile_config.h"
#include "linear/bf16_rows.h"

namespace octavo {
namespace {

constexpr int64_t kPrefetch = 4096;

inline void prefetch_tile(const uint8_t* tile) {
  for (int64_t line = 0; line < kTileBytes; line += 64) prefetch_near(tile + kPrefetch + line);
}

// 32 rows by two panels; without a second one of either the first takes its place.
inline void multiply_2x2(const uint8_t* a0, const uint8_t* a1, const uint8_t* b0, const uint8_t* b1, int64_t steps,
                         float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = step * kTileBytes;
    _tile_loadd(4, a0 + at, 64);
    _tile_loadd(6, b0 + at, 64);
    _tile_loadd(5, a1 + at, 64);
    _tile_loadd(7, b1 + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
}

// 16 rows by two panels, fetching the weights ahead: for the first rows of a panel, which come from memory.
inline void multiply_1x2(const uint8_t* a, const uint8_t* b0, const uint8_t* b1, int64_t steps, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t at = step * kTileBytes;
    prefetch_tile(b0 + at);
    prefetch_tile(b1 + at);
    _tile_loadd(4, a + at, 64);
    _tile_loadd(6, b0 + at, 64);
    _tile_loadd(7, b1 + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
}

inline void write_rows(const LinearCall& call, int64_t panel, int64_t row, const float* sums) {
  const int64_t count = call.rows - row < kTileRows ? call.rows - row : kTileRows;
  for (int64_t r = 0; r < count; ++r)
    write_columns(call, row + r, panel * kPanel, _mm512_loadu_ps(sums + 16 * r));
}

void panel_pair(const LinearCall& call, int64_t panel, int count, float* sums) {
  const int64_t kp = padded_k(call.weight->k()), steps = kp / 32, tile_row_bytes = bf16_tile_bytes(kp);
  const uint8_t *const b0 = call.weight->panel(panel), *const b1 = call.weight->panel(panel + count - 1);
  const uint8_t* a = call.prepared;
  for (int64_t row = 0; row < call.rows;) {
    const bool two = call.rows - row > kTileRows;
    if (two)
      multiply_2x2(a, a + tile_row_bytes, b0, b1, steps, sums);
    else
      multiply_1x2(a, b0, b1, steps, sums);
    for (int tile = 0; tile < (two ? 2 : 1); ++tile, row += kTileRows, a += tile_row_bytes)
      for (int which = 0; which < count; ++which) write_rows(call, panel + which, row, sums + 512 * tile + 256 * which);
  }
}

}  // namespace

int64_t bf16_scratch_bytes_amx() { return 4 * kTileBytes; }

void bf16_linear_amx(const LinearCall& call) {
  const TileConfig tiles;
  order_memory();
  for (int64_t panel = call.panel_begin; panel < call.panel_end; panel += 2)
    panel_pair(call, panel, call.panel_end - panel < 2 ? 1 : 2, reinterpret_cast<float*>(call.scratch));
}

}  // namespace octavo
