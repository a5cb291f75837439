// bf16 attention on AMX: both products read K and V from the cache as tile operands, without a copy.
//
// Tile registers: up to 16 rows, 0-3 sums, 4 rows of q or weights, 5-7 K or V (few_rows_amx.h); 17 to 32 rows, 0-1 sums of
// rows 0-15, 2-3 of the others, 4 and 5 their rows of q or weights, 6-7 K or V ("wide"). A row of a tile product depends
// on that row only, so both ways give the same bits.
#include "attention/bf16_rows.h"
#include "attention/driver.h"
#include "attention/few_rows_amx.h"
#include "common/order_memory.h"

namespace octavo {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

struct AmxKernel {
  using Simd = Avx512;
  using Element = uint16_t;
  using Weights = Bf16Weights;
  static constexpr int kFewRows = FewRows::kMost;

  void start_rows(int rows) {
    if (rows == configured_) return;
    configured_ = rows;
    const bool wide = rows > kFewRows;
    const int low = wide ? 16 : rows, high = wide ? rows - 16 : rows;
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      const bool operand = tile >= (wide ? 6 : 5), upper = tile == 2 || tile == 3 || tile == 5;
      config.rows[tile] = static_cast<uint8_t>(operand ? 16 : upper ? high : low);
      config.row_bytes[tile] = 64;
    }
    order_memory();
    _tile_loadconfig(&config);
  }
  void stop() {
    if (configured_ > 0) _tile_release();
  }

  static void pack(const float* x, int head_dim, int dim, float scale, float* q, int row) {
    pack_bf16_row(x, head_dim, dim, scale, q, row);
  }

  static void reduce(const float* q, int first_row, int rows, int dim, const PartitionTiles& tiles, int lo, int hi,
                     const Sight* sights, float* scores, const RowState& result) {
    const char* packed = reinterpret_cast<const char*>(q) + int64_t{first_row} * dim * 2;
    FewRows(sights, rows, dim, scores, result).reduce(packed, tiles, lo, hi);
  }
  static void scores(const float* q, int first_row, int, int dim, const PartitionTiles& tiles, int lo, int hi,
                     float* scores) {
    const char* packed = reinterpret_cast<const char*>(q) + int64_t{first_row} * dim * 2;
    order_memory();
    for (int tile = lo; tile < hi; ++tile) wide_scores(packed, dim, tiles.k[tile], scores + tile * kKvTile);
  }
  static void values(const float* weights, int, int dim, const char* const* tiles, int lo, int hi, float* out) {
    order_memory();
    for (int d = 0; d < dim; d += 32)
      wide_values(reinterpret_cast<const char*>(weights), dim, d, tiles, lo, hi, out + d);
  }

 private:
  static void wide_scores(const char* q, int dim, const char* k, float* scores) {
    const int64_t group = int64_t{dim} * 32;  // bytes of 16 keys
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int d = 0; d < dim; d += 32) {
      _tile_loadd(4, q + d * 2, dim * 2);
      _tile_loadd(6, k + d * 32, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, k + group + d * 32, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, q + int64_t{16} * dim * 2 + d * 2, dim * 2);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, scores, kScoreBytes);
    _tile_stored(1, scores + 16, kScoreBytes);
    _tile_stored(2, scores + 16 * kScoreStride, kScoreBytes);
    _tile_stored(3, scores + 16 * kScoreStride + 16, kScoreBytes);
  }

  static void wide_values(const char* weights, int dim, int d, const char* const* tiles, int lo, int hi, float* out) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int tile = lo; tile < hi; ++tile) {
      const char* v = tiles[tile] + d * kKvTile * 2;
      _tile_loadd(4, weights + tile * 64, kScoreBytes);
      _tile_loadd(6, v, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, v + kTileElements * 2, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, weights + 16 * kScoreBytes + tile * 64, kScoreBytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, dim * 4);
    _tile_stored(1, out + 16, dim * 4);
    _tile_stored(2, out + 16 * dim, dim * 4);
    _tile_stored(3, out + 16 * dim + 16, dim * 4);
  }

  int configured_ = 0;
};

}  // namespace

void attention_phase1_amx(const AttentionCall& call) { Worker<AmxKernel>(call).run(); }

}  // namespace octavo
