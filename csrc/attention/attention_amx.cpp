// bf16 attention on AMX: both products read K and V from the cache as tile operands, without a copy.
//
// Tile registers: up to 16 rows, 0-3 sums, 4 rows of q or weights, 5-7 K or V ("narrow"); 17 to 32 rows, 0-1 sums of rows
// 0-15, 2-3 of the others, 4 and 5 their rows of q or weights, 6-7 K or V ("wide"). A row of a tile product depends on
// that row only, so both ways give the same bits.
#include "attention/bf16_rows.h"
#include "attention/driver.h"
#include "attention/products.h"
#include "common/order_memory.h"

namespace octavo {
namespace {

constexpr int kTileElements = 16 * 32;  // bf16 in a full tile register
constexpr int kScoreBytes = kScoreStride * 4;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// A tile of K or V of which few rows are products: they wait for memory, so what is read next is asked for, into the first
// cache kBytesAhead before. Of every page a line is asked for much earlier, for finding a page takes longest.
class NarrowTile {
 public:
  // tiles: of a partition, with those behind it (call.h).
  NarrowTile(const char* const* tiles, int dim)
      : tile_(tiles[0]), next_(tiles[near_tiles(dim)]), later_(tiles[kTilesAhead]) {}

  // The tile operand at `offset`.
  const char* operand(int64_t offset) const {
#pragma GCC unroll 16
    for (int line = 0; line < 16; ++line) _mm_prefetch(next_ + offset + line * kLine, _MM_HINT_T0);
    return tile_ + offset;
  }
  void find_page(int64_t offset) const { prefetch_line(later_ + offset); }

 private:
  static constexpr int kBytesAhead = 12 * 1024;
  static int near_tiles(int dim) {
    const int tiles = kBytesAhead / (dim * kKvTile * 2);
    return tiles > 0 ? tiles : 1;
  }
  const char *tile_, *next_, *later_;
};

struct AmxKernel {
  using Simd = Avx512;
  using Element = uint16_t;
  using Weights = Bf16Weights;

  void start_rows(int rows) {
    if (rows == configured_) return;
    configured_ = rows;
    const bool wide = rows > 16;
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

  static void scores(const float* q, int first_row, int rows, int dim, const PartitionTiles& tiles, int lo, int hi,
                     float* scores) {
    const char* packed = reinterpret_cast<const char*>(q) + int64_t{first_row} * dim * 2;
    order_memory();
    if (rows > 16) {
      for (int tile = lo; tile < hi; ++tile) wide_scores(packed, dim, tiles.k[tile], scores + tile * kKvTile);
      return;
    }
    int tile = lo;
    for (; tile + 2 <= hi; tile += 2)
      narrow_scores_pair(packed, dim, {tiles.k + tile, dim}, {tiles.k + tile + 1, dim}, scores + tile * kKvTile);
    if (tile < hi) narrow_scores(packed, dim, {tiles.k + tile, dim}, scores + tile * kKvTile);
  }

  static void values(const float* weights, int rows, int dim, const char* const* tiles, int lo, int hi, float* out) {
    const char* packed = reinterpret_cast<const char*>(weights);
    int d = 0;
    order_memory();
    if (rows > 16) {
      for (; d < dim; d += 32) wide_values(packed, dim, d, tiles, lo, hi, out + d);
      return;
    }
    for (; d + 64 <= dim; d += 64) narrow_values_64(packed, dim, d, tiles, lo, hi, out + d);
    if (d < dim) narrow_values_32(packed, dim, d, tiles, lo, hi, out + d);
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

  static void narrow_scores_pair(const char* q, int dim, const NarrowTile& k0, const NarrowTile& k1, float* scores) {
    const int64_t group = int64_t{dim} * 32;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int d = 0; d < dim; d += 32) {
      if (d % 64 == 0) k0.find_page(d * 64), k1.find_page(d * 64);
      _tile_loadd(4, q + d * 2, dim * 2);
      _tile_loadd(5, k0.operand(d * 32), 64);
      _tile_dpbf16ps(0, 4, 5);
      _tile_loadd(6, k0.operand(group + d * 32), 64);
      _tile_dpbf16ps(1, 4, 6);
      _tile_loadd(7, k1.operand(d * 32), 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_loadd(5, k1.operand(group + d * 32), 64);
      _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, scores, kScoreBytes);
    _tile_stored(1, scores + 16, kScoreBytes);
    _tile_stored(2, scores + 32, kScoreBytes);
    _tile_stored(3, scores + 48, kScoreBytes);
  }

  static void narrow_scores(const char* q, int dim, const NarrowTile& k, float* scores) {
    const int64_t group = int64_t{dim} * 32;
    _tile_zero(0);
    _tile_zero(1);
    for (int d = 0; d < dim; d += 32) {
      if (d % 64 == 0) k.find_page(d * 64);
      _tile_loadd(4, q + d * 2, dim * 2);
      _tile_loadd(5, k.operand(d * 32), 64);
      _tile_dpbf16ps(0, 4, 5);
      _tile_loadd(6, k.operand(group + d * 32), 64);
      _tile_dpbf16ps(1, 4, 6);
    }
    _tile_stored(0, scores, kScoreBytes);
    _tile_stored(1, scores + 16, kScoreBytes);
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

  static void narrow_values_64(const char* weights, int dim, int d, const char* const* tiles, int lo, int hi,
                               float* out) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int tile = lo; tile < hi; ++tile) {
      const NarrowTile v(tiles + tile, dim);
      const int64_t at = d * kKvTile * 2;
      v.find_page(at);
      _tile_loadd(4, weights + tile * 64, kScoreBytes);
      _tile_loadd(5, v.operand(at), 64);
      _tile_dpbf16ps(0, 4, 5);
      _tile_loadd(6, v.operand(at + kTileElements * 2), 64);
      _tile_dpbf16ps(1, 4, 6);
      _tile_loadd(7, v.operand(at + kTileElements * 4), 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_loadd(5, v.operand(at + kTileElements * 6), 64);
      _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, out, dim * 4);
    _tile_stored(1, out + 16, dim * 4);
    _tile_stored(2, out + 32, dim * 4);
    _tile_stored(3, out + 48, dim * 4);
  }

  static void narrow_values_32(const char* weights, int dim, int d, const char* const* tiles, int lo, int hi,
                               float* out) {
    _tile_zero(0);
    _tile_zero(1);
    for (int tile = lo; tile < hi; ++tile) {
      const NarrowTile v(tiles + tile, dim);
      const int64_t at = d * kKvTile * 2;
      v.find_page(at);
      _tile_loadd(4, weights + tile * 64, kScoreBytes);
      _tile_loadd(5, v.operand(at), 64);
      _tile_dpbf16ps(0, 4, 5);
      _tile_loadd(6, v.operand(at + kTileElements * 2), 64);
      _tile_dpbf16ps(1, 4, 6);
    }
    _tile_stored(0, out, dim * 4);
    _tile_stored(1, out + 16, dim * 4);
  }

  int configured_ = 0;
};

}  // namespace

void attention_phase1_amx(const AttentionCall& call) { Worker<AmxKernel>(call).run(); }

}  // namespace octavo
