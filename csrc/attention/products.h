// The two products of attention in float32 vectors, over cache tiles of either type: internal linkage.
//
// A row's sums run over dims (scores) and positions (values) in ascending order, one multiply-add each, whatever the
// number of rows.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "attention/call.h"
#include "common/prefetch.h"

namespace octavo {
namespace {

// Elements between lanes of a cache row: partners are neighbours in bf16 (see kv_cache.h).
template <class Element>
constexpr int lane_step() {
  return sizeof(Element) == 2 ? 2 : 1;
}

constexpr int kLine = 64;  // bytes

// The cache rows of one pair, `groups` of 16 lanes, group_elements apart. Into the second cache: what is on its way to the first
// one holds up the loads of others.
template <class Element>
inline void prefetch_pair(const Element* first, int groups, int64_t group_elements) {
  constexpr int kBytes = 2 * 16 * sizeof(Element);
  for (int g = 0; g < groups; ++g)
    for (int at = 0; at < kBytes; at += kLine)
      prefetch_far(reinterpret_cast<const char*>(first + g * group_elements) + at);
}

// scores[r][0..32) of kRows rows against one tile of keys. ahead: a tile to prefetch meanwhile.
template <class Simd, class Element, int kRows, bool kPrefetch>
inline void score_rows(const float* q, int dim, const Element* k, [[maybe_unused]] const Element* ahead, float* scores) {
  using Vec = typename Simd::Vec;
  constexpr int kWidth = Simd::kWidth;
  for (int token = 0; token < kKvTile; token += 2 * kWidth) {
    const Element* keys[2];
    for (int v = 0; v < 2; ++v) {
      const int first = token + v * kWidth;
      keys[v] = k + (first / 16) * dim * 16 + (first % 16) * lane_step<Element>();
    }
    Vec sums[kRows][2];
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = Simd::zero();
    for (int pair = 0; pair < dim / 2; ++pair) {
      if constexpr (kPrefetch) prefetch_pair(ahead + (token / 16) * dim * 16 + pair * 32, 2 * kWidth / 16, dim * 16);
      Vec even[2], odd[2];
      for (int v = 0; v < 2; ++v) Simd::load_pair(keys[v] + pair * 32, even[v], odd[v]);
      for (int r = 0; r < kRows; ++r) {
        const float* row = q + r * dim + 2 * pair;
        const Vec first = Simd::set(row[0]), second = Simd::set(row[1]);
        for (int v = 0; v < 2; ++v) sums[r][v] = Simd::fma(first, even[v], sums[r][v]);
        for (int v = 0; v < 2; ++v) sums[r][v] = Simd::fma(second, odd[v], sums[r][v]);
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < 2; ++v) Simd::store(scores + r * kScoreStride + token + v * kWidth, sums[r][v]);
  }
}

// out[r][0..dim) = weights of tiles [lo, hi) times V, for kRows rows. Prefetches tiles kTilesAhead further on.
template <class Simd, class Element, int kRows, bool kPrefetch>
inline void value_rows(const float* weights, int dim, const char* const* tiles, int lo, int hi, float* out) {
  using Vec = typename Simd::Vec;
  constexpr int kWidth = Simd::kWidth;
  for (int d = 0; d < dim; d += 2 * kWidth) {
    int at[2];
    for (int v = 0; v < 2; ++v) {
      const int first = d + v * kWidth;
      at[v] = (first / 16) * kKvTile * 16 + (first % 16) * lane_step<Element>();
    }
    Vec sums[kRows][2];
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = Simd::zero();
    for (int tile = lo; tile < hi; ++tile) {
      const Element* values = reinterpret_cast<const Element*>(tiles[tile]);
      [[maybe_unused]] const Element* ahead = reinterpret_cast<const Element*>(tiles[tile + kTilesAhead]) + d * kKvTile;
      for (int pair = 0; pair < kKvTile / 2; ++pair) {
        if constexpr (kPrefetch) prefetch_pair(ahead + pair * 32, 2 * kWidth / 16, kKvTile * 16);
        Vec even[2], odd[2];
        for (int v = 0; v < 2; ++v) Simd::load_pair(values + at[v] + pair * 32, even[v], odd[v]);
        for (int r = 0; r < kRows; ++r) {
          const float* row = weights + r * kScoreStride + tile * kKvTile + 2 * pair;
          const Vec first = Simd::set(row[0]), second = Simd::set(row[1]);
          for (int v = 0; v < 2; ++v) sums[r][v] = Simd::fma(first, even[v], sums[r][v]);
          for (int v = 0; v < 2; ++v) sums[r][v] = Simd::fma(second, odd[v], sums[r][v]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < 2; ++v) Simd::store(out + r * dim + d + v * kWidth, sums[r][v]);
  }
}

// Calls with(n) for n = rows as a compile-time constant, 1 <= rows <= kMax.
template <int kMax, class With>
inline void dispatch_rows(int rows, With with) {
  if constexpr (kMax > 1) {
    if (rows < kMax) return dispatch_rows<kMax - 1>(rows, with);
  }
  with(std::integral_constant<int, kMax>{});
}

// The vector kernel of one instruction set and cache type, as driver.h wants it.
template <class SimdType, class ElementType>
struct VectorKernel {
  using Simd = SimdType;
  using Element = ElementType;
  using Weights = FloatWeights<Simd>;
  static constexpr int kFewRows = 0;

  void start_rows(int) {}
  void stop() {}

  // Query row `row` of a task: scaled, padded with zeros.
  static void pack(const float* x, int head_dim, int dim, float scale, float* q, int row) {
    float* packed = q + row * dim;
    for (int d = 0; d < head_dim; ++d) packed[d] = x[d] * scale;
    for (int d = head_dim; d < dim; ++d) packed[d] = 0.0f;
  }
  static void scores(const float* q, int first_row, int rows, int dim, const PartitionTiles& tiles, int lo, int hi,
                     float* scores) {
    for (int tile = lo; tile < hi; ++tile)
      for (int r = 0; r < rows; r += Simd::kRows)
        dispatch_rows<Simd::kRows>(rows - r < Simd::kRows ? rows - r : Simd::kRows, [&](auto count) {
          constexpr int kCount = decltype(count)::value;
          const Element *k = elements(tiles.k[tile]), *ahead = elements(tiles.k[tile + kTilesAhead]);
          const float* first = q + (first_row + r) * dim;
          float* out = scores + r * kScoreStride + tile * kKvTile;
          if (r == 0) {
            score_rows<Simd, Element, kCount, true>(first, dim, k, ahead, out);
          } else {
            score_rows<Simd, Element, kCount, false>(first, dim, k, ahead, out);
          }
        });
  }
  static void values(const float* weights, int rows, int dim, const char* const* tiles, int lo, int hi, float* out) {
    for (int r = 0; r < rows; r += Simd::kRows)
      dispatch_rows<Simd::kRows>(rows - r < Simd::kRows ? rows - r : Simd::kRows, [&](auto count) {
        constexpr int kCount = decltype(count)::value;
        if (r == 0) {
          value_rows<Simd, Element, kCount, true>(weights, dim, tiles, lo, hi, out);
        } else {
          value_rows<Simd, Element, kCount, false>(weights + r * kScoreStride, dim, tiles, lo, hi, out + r * dim);
        }
      });
  }

 private:
  static const Element* elements(const char* tile) { return reinterpret_cast<const Element*>(tile); }
};

}  // namespace
}  // namespace octavo
