// bf16 attention in products of bf16 pairs, read from the cache as they lie there.
//
// A row's sums run over pairs of dims (scores) and of positions (values) in ascending order, one instruction each, whatever
// the number of rows.
#include <utility>

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

// Sums of one row and kGroups groups of 16 columns: two, and two more. Without loops, for which GCC 12 writes sums to memory
// after their products.
template <int kGroups>
struct GroupSums {
  static_assert(kGroups == 2 || kGroups == 4);
  __m512 sums[kGroups] = {};

  [[gnu::always_inline]] inline void add(const __m512bh* columns, __m512bh row) {
    sums[0] = _mm512_dpbf16_ps(sums[0], columns[0], row);
    sums[1] = _mm512_dpbf16_ps(sums[1], columns[1], row);
    if constexpr (kGroups == 4) {
      sums[2] = _mm512_dpbf16_ps(sums[2], columns[2], row);
      sums[3] = _mm512_dpbf16_ps(sums[3], columns[3], row);
    }
  }
  [[gnu::always_inline]] inline void store(float* to) const {
    _mm512_storeu_ps(to, sums[0]);
    _mm512_storeu_ps(to + 16, sums[1]);
    if constexpr (kGroups == 4) {
      _mm512_storeu_ps(to + 32, sums[2]);
      _mm512_storeu_ps(to + 48, sums[3]);
    }
  }
};

// Scores of rows R... against kGroups groups of 16 keys, which lie at k[g]; what lies at ahead[g] is prefetched meanwhile.
template <int kGroups, bool kPrefetch, int... R>
inline void score_groups(const char* q, int dim, const char* const* k, const char* const* ahead, float* scores,
                         std::integer_sequence<int, R...>) {
  GroupSums<kGroups> sums[sizeof...(R)];
#pragma GCC unroll 4
  for (int pair = 0; pair < dim / 2; ++pair) {
    __m512bh keys[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      if (kPrefetch) prefetch_far(ahead[g] + pair * kLine);
      keys[g] = load_row(k[g] + pair * kLine);
    }
    (sums[R].add(keys, broadcast_pair(q + (R * dim + 2 * pair) * 2)), ...);
  }
  (sums[R].store(scores + R * kScoreStride), ...);
}

// out[R][0..16 * kGroups) = weights of tiles [lo, hi) times dims [d, d + 16 * kGroups) of V.
template <int kGroups, bool kPrefetch, int... R>
inline void value_groups(const char* weights, int dim, int d, const char* const* tiles, int lo, int hi, float* out,
                         std::integer_sequence<int, R...>) {
  constexpr int64_t kGroupBytes = kKvTile / 2 * kLine;
  GroupSums<kGroups> sums[sizeof...(R)];
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
      (sums[R].add(v, broadcast_pair(weights + R * kScoreStride * 4 + (tile * kKvTile + 2 * pair) * 2)), ...);
    }
  }
  (sums[R].store(out + R * dim), ...);
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
        const auto pack = std::make_integer_sequence<int, decltype(count)::value>{};
        const char* first = packed + int64_t{r} * kScoreStride * 4;
        if (r == 0) {
          value_dims<true>(first, dim, tiles, lo, hi, out, pack);
        } else {
          value_dims<false>(first, dim, tiles, lo, hi, out + r * dim, pack);
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
        const auto pack = std::make_integer_sequence<int, decltype(count)::value>{};
        const char* first = q + r * dim * 2;
        if (r == 0) {
          score_groups<kGroups, true>(first, dim, k, ahead, scores, pack);
        } else {
          score_groups<kGroups, false>(first, dim, k, ahead, scores + r * kScoreStride, pack);
        }
      });
  }

  template <bool kPrefetch, class Pack>
  static void value_dims(const char* weights, int dim, const char* const* tiles, int lo, int hi, float* out, Pack rows) {
    int d = 0;
    for (; d + 64 <= dim; d += 64) value_groups<4, kPrefetch>(weights, dim, d, tiles, lo, hi, out + d, rows);
    if (d < dim) value_groups<2, kPrefetch>(weights, dim, d, tiles, lo, hi, out + d, rows);
  }
};

}  // namespace

void attention_phase1_avx512bf16(const AttentionCall& call) { Worker<Bf16Kernel>(call).run(); }

}  // namespace octavo
