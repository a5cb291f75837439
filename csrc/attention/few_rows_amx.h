// bf16 attention of at most 16 rows on AMX, as in decode: internal linkage.
//
// So few rows wait for memory, which must always have something to do: K and V are asked for well ahead, and vectors look
// for the largest scores, and make weights, tile by tile beside the products, so that at no time nothing is asked for.
#pragma once

#include <immintrin.h>

#include "attention/bf16_rows.h"
#include "attention/products.h"
#include "attention/softmax.h"
#include "common/order_memory.h"
#include "common/prefetch.h"

namespace octavo {
namespace {

constexpr int kTileElements = 16 * 32;  // bf16 in a full tile register
constexpr int kScoreBytes = kScoreStride * 4;

// A tile of K or V. As its operands are taken, what is read kBytesAhead later is asked for, into the first cache. Of every
// page a line is asked for much earlier, for finding a page takes longest.
class AskingTile {
 public:
  // tiles: of a partition, with those behind it (call.h).
  AskingTile(const char* const* tiles, int dim)
      : tile_(tiles[0]), next_(tiles[near_tiles(dim)]), later_(tiles[kTilesAhead]) {}

  // The tile operand at `offset`.
  const char* operand(int64_t offset) const {
#pragma GCC unroll 16
    for (int line = 0; line < 16; ++line) prefetch_near(next_ + offset + line * kLine);
    return tile_ + offset;
  }
  void find_page(int64_t offset) const { prefetch_far(later_ + offset); }

 private:
  static constexpr int kBytesAhead = 12 * 1024;
  static int near_tiles(int dim) {
    const int tiles = kBytesAhead / (dim * kKvTile * 2);
    return tiles > 0 ? tiles : 1;
  }
  const char *tile_, *next_, *later_;
};

// Some rows over tiles of a partition.
class FewRows {
 public:
  static constexpr int kMost = 16;

  // sights: of each row. scores: room for them.
  FewRows(const Sight* sights, int rows, int dim, float* scores, const RowState& result)
      : sights_(sights), rows_(rows), dim_(dim), scores_(scores), result_(result) {
    for (int r = 0; r < rows; ++r) {
      shared_.begin = sights[r].begin > shared_.begin ? sights[r].begin : shared_.begin;
      shared_.end = sights[r].end < shared_.end ? sights[r].end : shared_.end;
      highest_[r] = _mm512_set1_ps(-FLT_MAX);
      sums_[r] = _mm512_setzero_ps();
    }
  }

  // q: the first of the packed rows.
  void reduce(const char* q, const PartitionTiles& tiles, int lo, int hi) {
    take_scores(q, tiles.k, lo, hi);
    take_values(tiles.v, lo, hi);
  }

 private:
  // The largest scores of a pair of tiles are looked for beside the next one's products.
  void take_scores(const char* q, const char* const* k, int lo, int hi) {
    order_memory();
    int tile = lo, seen = lo;
    for (; tile + 2 <= hi; tile += 2) {
      score_pair(q, dim_, {k + tile, dim_}, {k + tile + 1, dim_}, scores_ + tile * kKvTile);
      order_memory();
      for (; seen < tile; ++seen) find_highest(seen);
    }
    if (tile < hi) score_one(q, dim_, {k + tile, dim_}, scores_ + tile * kKvTile);
    order_memory();
    for (; seen < hi; ++seen) find_highest(seen);
    for (int r = 0; r < rows_; ++r) result_.max[r] = Avx512::highest(highest_[r]);
  }

  // Weights of a tile are made beside the products of the one before it.
  void take_values(const char* const* v, int lo, int hi) {
    const char* weights = reinterpret_cast<const char*>(scores_);
    int tile = lo;
    const auto weigh_to = [&](int end) {
      for (; tile < end && tile < hi; ++tile) weigh(tile);
      order_memory();
    };
    int d = 0;
    for (; d + 64 <= dim_; d += 64) values_64(weights, dim_, d, v, lo, hi, result_.out + d, weigh_to);
    weigh_to(hi);
    if (d < dim_) values_32(weights, dim_, d, v, lo, hi, result_.out + d);
    for (int r = 0; r < rows_; ++r) {
      const __m512 sum[1] = {sums_[r]};
      result_.sum[r] = Avx512::total(sum);
    }
  }

  bool all_see(int tile) const { return tile * kKvTile >= shared_.begin && (tile + 1) * kKvTile <= shared_.end; }

  void find_highest(int tile) {
    const bool whole = all_see(tile);
    for (int r = 0; r < rows_; ++r)
      for (int at = tile * kKvTile; at < (tile + 1) * kKvTile; at += 16) {
        const __m512 higher = Avx512::max(Avx512::load(scores_ + r * kScoreStride + at), highest_[r]);
        const __mmask16 seen = whole ? 0xffff : Avx512::lanes(sights_[r].begin - at, sights_[r].end - at);
        highest_[r] = Avx512::where(seen, higher, highest_[r]);
      }
  }

  void weigh(int tile) {
    if (all_see(tile)) {
      weigh_rows<false>(tile);
    } else {
      weigh_rows<true>(tile);
    }
  }
  template <bool kMasked>
  void weigh_rows(int tile) {
    for (int r = 0; r < rows_; ++r)
      weigh_tile<Bf16Weights, kMasked>(scores_ + r * kScoreStride, tile * kKvTile, Avx512::set(result_.max[r]),
                                       sights_[r].begin, sights_[r].end, sums_ + r);
  }

  static void score_pair(const char* q, int dim, const AskingTile& k0, const AskingTile& k1, float* scores) {
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

  static void score_one(const char* q, int dim, const AskingTile& k, float* scores) {
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

  // weigh_to(tile): sees to it that tiles before that one have weights.
  template <class WeighTo>
  static void values_64(const char* weights, int dim, int d, const char* const* tiles, int lo, int hi, float* out,
                        const WeighTo& weigh_to) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int tile = lo; tile < hi; ++tile) {
      const AskingTile v(tiles + tile, dim);
      const int64_t at = d * kKvTile * 2;
      weigh_to(tile + 2);
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

  static void values_32(const char* weights, int dim, int d, const char* const* tiles, int lo, int hi, float* out) {
    _tile_zero(0);
    _tile_zero(1);
    for (int tile = lo; tile < hi; ++tile) {
      const AskingTile v(tiles + tile, dim);
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

  const Sight* const sights_;
  const int rows_, dim_;
  float* const scores_;
  const RowState result_;
  Sight shared_{0, kPartition};  // what every row sees
  __m512 highest_[kMost], sums_[kMost];
};

}  // namespace
}  // namespace octavo
