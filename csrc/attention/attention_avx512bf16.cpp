// bf16 attention in products of bf16 pairs, read from the cache as they lie there.
//
// A row's sums run over pairs of dims (scores) and of positions (values) in ascending order, one instruction each, whatever
// the number of rows.
#include "attention/bf16_rows.h"
#include "attention/driver.h"
#include "attention/products.h"

namespace octavo {
namespace {

inline __m512bh load_row(const char* p) { return (__m512bh)_mm512_loadu_si512(p); }
inline __m512bh broadcast_pair(const char* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

// Scores of kRows rows against kGroups groups of 16 keys, which lie at k[g]; what lies at ahead[g] is prefetched meanwhile.
template <int kRows, int kGroups, bool kPrefetch>
inline void score_groups(const char* q, int dim, const char* const* k, const char* const* ahead, float* scores) {
  __m512 sums[kRows][kGroups];
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kGroups; ++g) sums[r][g] = _mm512_setzero_ps();
#pragma GCC unroll 4
  for (int pair = 0; pair < dim / 2; ++pair) {
    __m512bh keys[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      if (kPrefetch) prefetch_far(ahead[g] + pair * kLine);
      keys[g] = load_row(k[g] + pair * kLine);
    }
    for (int r = 0; r < kRows; ++r) {
      const __m512bh row = broadcast_pair(q + (r * dim + 2 * pair) * 2);
      for (int g = 0; g < kGroups; ++g) sums[r][g] = _mm512_dpbf16_ps(sums[r][g], keys[g], row);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kGroups; ++g) _mm512_storeu_ps(scores + r * kScoreStride + g * 16, sums[r][g]);
}

// out[r][0..16 * kGroups) = weights of tiles [lo, hi) times dims [d, d + 16 * kGroups) of V.
template <int kRows, int kGroups, bool kPrefetch>
inline void value_groups(const char* weights, int dim, int d, const char* const* tiles, int lo, int hi,
                         float* out) {
  constexpr int64_t kGroupBytes = kKvTile / 2 * kLine;
  __m512 sums[kRows][kGroups];
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kGroups; ++g) sums[r][g] = _mm512_setzero_ps();
  for (int tile = lo; tile < hi; ++tile) {
    const char* values = tiles[tile] + d * kLine;
    const char* ahead = tiles[tile + kTilesAhead] + d * kLine;
#pragma GCC unroll 2
    for (int pair = 0; pair < kKvTile / 2; ++pair) {
      __m512bh v[kGroups];
      for (int g = 0; g < kGroups; ++g) {
        if (kPrefetch) prefetch_far(ahead + g * kGroupBytes + pair * kLine);
        v[g] = load_row(values + g * kGroupBytes + pair * kLine);
      }
      for (int r = 0; r < kRows; ++r) {
        const __m512bh row = broadcast_pair(weights + r * kScoreStride * 4 + (tile * kKvTile + 2 * pair) * 2);
        for (int g = 0; g < kGroups; ++g) sums[r][g] = _mm512_dpbf16_ps(sums[r][g], v[g], row);
      }
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kGroups; ++g) _mm512_storeu_ps(out + r * dim + g * 16, sums[r][g]);
}

struct Bf16Kernel {
  using Simd = Avx512;
  using Element = uint16_t;
  using Weights = Bf16Weights;
  static constexpr int kFewRows = 0;

  void start_rows(int) {}
  void stop() {}

  static void pack(const float* x, int head_dim, int dim, float scale, float* q, int row) {
    pack_bf16_row(x, head_dim, dim, scale, q, row);
  }

  static void scores(const float* q, int first_row, int rows, int dim, const PartitionTiles& tiles, int lo, int hi,
                     float* scores) {
    const char* packed = reinterpret_cast<const char*>(q) + int64_t{first_row} * dim * 2;
    int tile = lo;
    // Few rows wait for memory: a tile is two streams, two would be four.
    for (; rows > kRowsOfOneTile && tile + 2 <= hi; tile += 2)
      score_tiles<2>(packed, rows, dim, tiles.k + tile, scores + tile * kKvTile);
    for (; tile < hi; ++tile) score_tiles<1>(packed, rows, dim, tiles.k + tile, scores + tile * kKvTile);
  }

  static void values(const float* weights, int rows, int dim, const char* const* tiles, int lo, int hi, float* out) {
    const char* packed = reinterpret_cast<const char*>(weights);
    for (int r = 0; r < rows; r += kRows)
      dispatch_rows<kRows>(rows - r < kRows ? rows - r : kRows, [&](auto count) {
        constexpr int kCount = decltype(count)::value;
        const char* first = packed + int64_t{r} * kScoreStride * 4;
        if (r == 0) {
          value_dims<kCount, true>(first, dim, tiles, lo, hi, out);
        } else {
          value_dims<kCount, false>(first, dim, tiles, lo, hi, out + r * dim);
        }
      });
  }

 private:
  static constexpr int kRows = 6;  // 24 sums and 4 rows of the cache
  static constexpr int kRowsOfOneTile = 4;

  template <int kTiles>
  static void score_tiles(const char* q, int rows, int dim, const char* const* tiles, float* scores) {
    constexpr int kGroups = 2 * kTiles;
    const char *k[kGroups], *ahead[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      k[g] = tiles[g / 2] + g % 2 * dim * 32;
      ahead[g] = tiles[g / 2 + kTilesAhead] + g % 2 * dim * 32;
    }
    for (int r = 0; r < rows; r += kRows)
      dispatch_rows<kRows>(rows - r < kRows ? rows - r : kRows, [&](auto count) {
        constexpr int kCount = decltype(count)::value;
        const char* first = q + r * dim * 2;
        if (r == 0) {
          score_groups<kCount, kGroups, true>(first, dim, k, ahead, scores);
        } else {
          score_groups<kCount, kGroups, false>(first, dim, k, ahead, scores + r * kScoreStride);
        }
      });
  }

  template <int kCount, bool kPrefetch>
  static void value_dims(const char* weights, int dim, const char* const* tiles, int lo, int hi, float* out) {
    int d = 0;
    for (; d + 64 <= dim; d += 64) value_groups<kCount, 4, kPrefetch>(weights, dim, d, tiles, lo, hi, out + d);
    if (d < dim) value_groups<kCount, 2, kPrefetch>(weights, dim, d, tiles, lo, hi, out + d);
  }
};

}  // namespace

void attention_phase1_avx512bf16(const AttentionCall& call) { Worker<Bf16Kernel>(call).run(); }

}  // namespace octavo
