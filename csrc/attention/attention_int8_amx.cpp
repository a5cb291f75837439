// Attention over the int8 cache on AMX: the exact sums of integer_products.h, and so its bits, by tiles of bytes.
//
// A 16-bit integer of q or of the weights is 256 * high + low: two planes of bytes, the high one signed, the low one
// not, and two tile products with the same codes. In the cache codes lie in pairs (kv_cache.h), in a tile in fours:
// they are copied, once for up to 32 rows. Where no more rows come than one block of the vector kernel takes, as in
// decode, tiles would be mostly empty and the copies for little: that kernel does them.
#include <optional>

#include "attention/simd_avx512.h"
#include "attention/driver.h"
#include "attention/integer_products.h"
#include "common/prefetch.h"
#include "common/tile_config.h"

namespace octavo {
namespace {

constexpr int kHalfRows = 16;  // rows of a tile register

// Sums of products of kTileRows rows of 16-bit integers with 32 columns of codes, both up to 512 deep.
//
// Tile registers: 0 and 1 sums of the high and the low plane with columns 0-15, 2 and 3 with the others; 4 and 7 the
// high and the low plane of rows; 5 and 6 columns. All are whole: rows that nobody set have sums that nobody reads, and
// columns that end in the middle of a step meet zeros there.
class ByteProducts {
 public:
  // depth: a multiple of 32.
  void set_row(int row, const int16_t* integers, int depth) {
    for (int at = 0; at < depth || at % kStep != 0; at += 32) {
      const __m512i x = at < depth ? _mm512_loadu_si512(integers + at) : _mm512_setzero_si512();
      char* const to = rows_ + at / kStep * 2 * kPlaneBytes + row * kStep + at % kStep;
      store_bytes(to, _mm512_srai_epi16(x, 8));
      store_bytes(to + kPlaneBytes, x);
    }
  }

  // 16 columns, at depths [at, at + 32): 8 lines of the cache, in which a column's two pairs are brought together. As
  // many lines at `ahead` are prefetched.
  void set_columns(int group, int at, const char* codes, const char* ahead) {
    alignas(64) static constexpr int16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i order = _mm512_load_si512(kOrder);
    char* const to = columns_ + (at / kStep * 2 + group) * kTileBytes + at % kStep / 4 * kLine;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      prefetch_far(ahead + i * kLine);
      _mm512_store_si512(to + i * kLine, _mm512_permutexvar_epi16(order, _mm512_loadu_si512(codes + i * kLine)));
    }
  }

  // Rows [row, row + kHalfRows) with all columns. The sums stay in tile registers.
  void multiply(int row, int depth) const {
    order_memory();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const char *rows = rows_ + row * kStep, *columns = columns_;
    for (int at = 0; at < depth; at += kStep, rows += 2 * kPlaneBytes, columns += 2 * kTileBytes) {
      _tile_loadd(4, rows, kStep);
      _tile_loadd(5, columns, kLine);
      _tile_dpbssd(0, 4, 5);
      _tile_loadd(6, columns + kTileBytes, kLine);
      _tile_dpbssd(2, 4, 6);
      _tile_loadd(7, rows + kPlaneBytes, kStep);
      _tile_dpbusd(1, 7, 5);
      _tile_dpbusd(3, 7, 6);
    }
  }

  // What multiply() made, to be read by sums().
  void store() {
    _tile_stored(0, sums_[0][0], sizeof sums_[0][0]);
    _tile_stored(1, sums_[1][0], sizeof sums_[1][0]);
    _tile_stored(2, sums_[0][0] + 16, sizeof sums_[0][0]);
    _tile_stored(3, sums_[1][0] + 16, sizeof sums_[1][0]);
  }
  __m512 sums(int row, int group) const {  // of 16 columns
    const __m512i high = _mm512_load_si512(sums_[0][row] + 16 * group);
    const __m512i low = _mm512_load_si512(sums_[1][row] + 16 * group);
    return Avx512::to_floats(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
  }

 private:
  static constexpr int kStep = 64;  // depth of a tile product, in bytes too
  static constexpr int kSteps = kPartition / kStep;
  static constexpr int kTileBytes = 16 * kStep, kPlaneBytes = kTileRows * kStep;

  // The low bytes of 32 integers.
  static void store_bytes(char* to, __m512i integers) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(integers));
  }

  alignas(64) char rows_[kSteps * 2 * kPlaneBytes];    // [step][high, low][row][64 bytes]
  alignas(64) char columns_[kSteps * 2 * kTileBytes];  // [step][group][16 fours][16 columns x 4 bytes]
  alignas(64) int32_t sums_[2][kHalfRows][32];         // [high, low][row][column]
};

// As driver.h wants it.
struct Int8AmxKernel : IntegerKernel<Avx512> {
  using Vectors = IntegerKernel<Avx512>;

  void start_rows(int rows) {
    if (by_tiles(rows) && !config_) config_.emplace();
  }

  void scores(const float* q, int first_row, int rows, int dim, const PartitionTiles& tiles, int lo, int hi,
              float* scores) {
    if (!by_tiles(rows)) return Vectors::scores(q, first_row, rows, dim, tiles, lo, hi, scores);
    q += first_row * dim;
    for (int r = 0; r < rows; ++r) products_.set_row(r, reinterpret_cast<const int16_t*>(q + r * dim), dim);
    const auto set_keys = [&](int tile) {
      const char *keys = tiles.k[tile], *ahead = tiles.k[tile + kTilesAhead];
      prefetch_scales(ahead, dim);
      prefetch_scales(tiles.v[tile], dim);
      for (int group = 0; group < 2; ++group, keys += dim * 16, ahead += dim * 16)
        for (int d = 0; d < dim; d += 32) products_.set_columns(group, d, keys + d * 16, ahead + d * 16);
    };
    multiply_blocks(rows, dim, lo, hi, set_keys, [=, &tiles](int tile, int row, const __m512* sums) {
      const __m512 q_scale = Avx512::set(q[row * dim + dim / 2]);
      for (int group = 0; group < 2; ++group) {
        const __m512 scale = Avx512::mul(Avx512::load(tile_scales(tiles.k[tile], dim) + 16 * group), q_scale);
        Avx512::store(scores + row * kScoreStride + tile * kKvTile + 16 * group, Avx512::mul(sums[group], scale));
      }
    });
  }

  // Spoils the weights.
  void values(float* weights, int rows, int dim, const char* const* tiles, int lo, int hi, float* out) {
    if (!by_tiles(rows)) return Vectors::values(weights, rows, dim, tiles, lo, hi, out);
    const int depth = (hi - lo) * kKvTile;
    float scales[kTileRows];
    for (int r = 0; r < rows; ++r) {
      float* const row = weights + r * kScoreStride;
      scales[r] = round_weights<Avx512>(row, dim, tiles, lo, hi);
      products_.set_row(r, reinterpret_cast<const int16_t*>(row) + lo * kKvTile, depth);
    }
    const auto set_values = [&](int block) {
      for (int tile = lo; tile < hi; ++tile)
        for (int group = 0; group < 2; ++group) {
          const int d = 32 * block + 16 * group;
          products_.set_columns(group, (tile - lo) * kKvTile, tiles[tile] + d * kKvTile,
                                tiles[tile + kTilesAhead] + d * kKvTile);
        }
    };
    multiply_blocks(rows, depth, 0, dim / 32, set_values, [=, &scales](int block, int row, const __m512* sums) {
      for (int group = 0; group < 2; ++group)
        Avx512::store(out + row * dim + 32 * block + 16 * group, Avx512::mul(sums[group], Avx512::set(scales[row])));
    });
  }

 private:
  static bool by_tiles(int rows) { return rows > Avx512::kIntegerRows; }

  // For blocks [begin, end) of 32 columns: set(block), then finish(block, row, two vectors of sums) for every row.
  // Vectors finish rows while tiles multiply the next ones.
  template <class Set, class Finish>
  void multiply_blocks(int rows, int depth, int begin, int end, Set set, Finish finish) {
    int last_block = begin, last_row = rows;  // none yet
    const auto finish_last = [&] {
      for (int r = last_row; r < rows && r < last_row + kHalfRows; ++r) {
        const __m512 sums[2] = {products_.sums(r - last_row, 0), products_.sums(r - last_row, 1)};
        finish(last_block, r, sums);
      }
    };
    for (int block = begin; block < end; ++block) {
      set(block);
      for (int row = 0; row < rows; row += kHalfRows) {
        products_.multiply(row, depth);
        finish_last();
        products_.store();
        last_block = block;
        last_row = row;
      }
    }
    finish_last();
  }

  std::optional<TileConfig> config_;
  ByteProducts products_;
};

}  // namespace

void attention_phase1_int8_amx(const AttentionCall& call) { Worker<Int8AmxKernel>(call).run(); }

}  // namespace octavo
