// The two products of attention over int8 cache tiles, in exact integer sums: internal linkage.
//
// A product multiplies 8-bit codes of K or V with 16-bit integers: the query row, or the weights of a partition, each
// with one scale for the row. 127 * 32768 * 512 < 2^31: neither 512 dims nor 512 positions can overflow 32 bits. Sums of
// integers have no order, so a row's result depends on nothing but the row and the tiles.
#pragma once

#include "attention/call.h"
#include "attention/products.h"
#include "attention/scaled_rows.h"
#include "attention/softmax.h"
#include "common/prefetch.h"

namespace octavo {
namespace {

constexpr int kInt16Max = 32767;
constexpr int kSteps = 4;  // pairs of dims or tokens that a loop takes at once

// The 32 tokens' scales of a tile of K or V.
inline const float* tile_scales(const char* tile, int dim) {
  return reinterpret_cast<const float*>(tile + kKvTile * dim);
}

inline void prefetch_scales(const char* tile, int dim) {
  prefetch_far(tile + kKvTile * dim);
  prefetch_far(tile + kKvTile * dim + kLine);
}

// Bytes of codes that two vectors of pairs take.
template <class Simd>
constexpr int kStepBytes = 4 * Simd::kWidth;

// The sums of kRows rows over two vectors of results each. Where kRows alone makes too few sums that are independent of
// each other, each result is kept in several. GCC must unroll every loop over them to keep them in registers.
template <class Simd, int kRows>
class Sums {
  using Ints = typename Simd::Ints;

 public:
  Sums() {
#pragma GCC unroll 32
    for (int i = 0; i < kParts * kRows; ++i) sums_[i][0] = sums_[i][1] = Simd::zero_ints();
  }

  // Adds the products of kSteps pairs of every row, `stride` integers apart, with two vectors of codes: those at
  // codes[v] + step * 32. As many bytes at `ahead` are prefetched meanwhile.
  template <bool kPrefetch>
  void add(const int16_t* rows, int stride, const int8_t* const* codes, const char* ahead) {
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step) {
      if (kPrefetch && step * kStepBytes<Simd> % kLine == 0) prefetch_far(ahead + step * kStepBytes<Simd>);
      const Ints x[2] = {Simd::load_pairs(codes[0] + step * 32), Simd::load_pairs(codes[1] + step * 32)};
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Ints row = Simd::set_pair(rows + r * stride + 2 * step);
        Ints* sums = sums_[step % kParts * kRows + r];
        sums[0] = Simd::add_products(row, x[0], sums[0]);
        sums[1] = Simd::add_products(row, x[1], sums[1]);
      }
    }
  }

  // Adds up what is kept in parts; then the results are there to be had.
  void finish() {
#pragma GCC unroll 32
    for (int i = kRows; i < kParts * kRows; ++i)
      for (int v = 0; v < 2; ++v) sums_[i % kRows][v] = Simd::add_ints(sums_[i % kRows][v], sums_[i][v]);
  }
  typename Simd::Vec floats(int row, int v) const { return Simd::to_floats(sums_[row][v]); }

 private:
  static constexpr int parts() {
    int parts = 1;
    while (parts < kSteps && 2 * kRows * parts < Simd::kLeastSums) parts *= 2;
    return parts;
  }
  static constexpr int kParts = parts();
  Ints sums_[kParts * kRows][2];
};

// scores[r][0..32) of kRows rows against one tile of keys. q: rows as IntegerKernel packs them. ahead: a tile to prefetch.
template <class Simd, int kRows, bool kPrefetch>
inline void integer_score_rows(const float* q, int dim, const char* tile, const char* ahead, float* scores) {
  constexpr int kWidth = Simd::kWidth;
  const float* k_scales = tile_scales(tile, dim);
  for (int token = 0; token < kKvTile; token += 2 * kWidth) {
    const int8_t* keys[2];
    for (int v = 0; v < 2; ++v) {
      const int first = token + v * kWidth;
      keys[v] = reinterpret_cast<const int8_t*>(tile) + (first / 16) * dim * 16 + first % 16 * 2;
    }
    Sums<Simd, kRows> sums;
    for (int pair = 0; pair < dim / 2; pair += kSteps) {
      const int8_t* const codes[2] = {keys[0] + pair * 32, keys[1] + pair * 32};
      sums.template add<kPrefetch>(reinterpret_cast<const int16_t*>(q) + 2 * pair, 2 * dim, codes,
                                   ahead + token * dim + pair * kStepBytes<Simd>);
    }
    sums.finish();
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < 2; ++v) {
        const int at = token + v * kWidth;
        const auto scale = Simd::mul(Simd::load(k_scales + at), Simd::set(q[r * dim + dim / 2]));
        Simd::store(scores + r * kScoreStride + at, Simd::mul(sums.floats(r, v), scale));
      }
    }
  }
}

// out[r][0..dim) = weights of tiles [lo, hi) times V, for kRows rows. weights, scales: as round_weights() leaves them.
// Prefetches tiles kTilesAhead further on.
template <class Simd, int kRows, bool kPrefetch>
inline void integer_value_rows(const float* weights, const float* scales, int dim, const char* const* tiles, int lo,
                               int hi, float* out) {
  constexpr int kWidth = Simd::kWidth;
  for (int d = 0; d < dim; d += 2 * kWidth) {
    int at[2];
    for (int v = 0; v < 2; ++v) {
      const int first = d + v * kWidth;
      at[v] = (first / 16) * kKvTile * 16 + first % 16 * 2;
    }
    Sums<Simd, kRows> sums;
    for (int tile = lo; tile < hi; ++tile) {
      const int8_t* values = reinterpret_cast<const int8_t*>(tiles[tile]);
      const int16_t* tile_weights = reinterpret_cast<const int16_t*>(weights) + tile * kKvTile;
      for (int pair = 0; pair < kKvTile / 2; pair += kSteps) {
        const int8_t* const codes[2] = {values + at[0] + pair * 32, values + at[1] + pair * 32};
        sums.template add<kPrefetch>(tile_weights + 2 * pair, 2 * kScoreStride, codes,
                                     tiles[tile + kTilesAhead] + d * kKvTile + pair * kStepBytes<Simd>);
      }
    }
    sums.finish();
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < 2; ++v)
        Simd::store(out + r * dim + d + v * kWidth, Simd::mul(sums.floats(r, v), Simd::set(scales[r])));
  }
}

// Multiplies a row's weights of tiles [lo, hi) by the scales of V and rounds them to 16 bits, in the front half of the
// row. Returns the scale of the result. A weight of 0 stays 0 whatever lies in its slot.
template <class Simd>
inline float round_weights(float* row, int dim, const char* const* tiles, int lo, int hi) {
  constexpr int kWidth = Simd::kWidth;
  auto max = Simd::zero();
  for (int tile = lo; tile < hi; ++tile) {
    const float* v_scales = tile_scales(tiles[tile], dim);
    for (int i = 0; i < kKvTile; i += kWidth) {
      float* at = row + tile * kKvTile + i;
      const auto weight = Simd::load(at);
      const auto scaled = Simd::where_not_zero(weight, Simd::mul(weight, Simd::load(v_scales + i)));
      max = Simd::max(scaled, max);
      Simd::store(at, scaled);
    }
  }
  const float largest = Simd::highest(max);
  const auto factor = Simd::set(largest < kTiniest ? 0.0f : kInt16Max / largest);
  // In place: an integer is written where the floats before it have been read.
  int16_t* rounded = reinterpret_cast<int16_t*>(row);
  for (int i = lo * kKvTile; i < hi * kKvTile; i += kWidth)
    Simd::store_rounded(rounded + i, Simd::mul(Simd::load(row + i), factor));
  return largest < kTiniest ? 0.0f : largest / kInt16Max;
}

// The kernel over int8 caches, as driver.h wants it.
template <class SimdType>
struct IntegerKernel {
  using Simd = SimdType;
  using Element = int8_t;
  using Weights = FloatWeights<Simd>;
  static constexpr int kFewRows = 0;

  void start_rows(int) {}
  void stop() {}

  // Query row `row` of a task, rotated as the keys are: 16-bit integers, padded with zeros, in the first half of its `dim`
  // floats, then its scale.
  static void pack(const float* x, int head_dim, int dim, float scale, float* q, int row) {
    alignas(64) float rotated[512];
    std::memcpy(rotated, x, head_dim * sizeof(float));
    rotate(rotated, head_dim);
    int16_t* packed = reinterpret_cast<int16_t*>(q + row * dim);
    const float row_scale = encode_scaled<int16_t, kInt16Max>(rotated, head_dim, dim, packed);
    q[row * dim + dim / 2] = row_scale * (scale / rotation_block(head_dim));
  }

  static void scores(const float* q, int first_row, int rows, int dim, const PartitionTiles& tiles, int lo, int hi,
                     float* scores) {
    for (int tile = lo; tile < hi; ++tile) {
      const char* ahead = tiles.k[tile + kTilesAhead];
      prefetch_scales(ahead, dim);
      prefetch_scales(tiles.v[tile], dim);
      for (int r = 0; r < rows; r += kRows) {
        const int n = rows - r < kRows ? rows - r : kRows;
        dispatch_rows<kRows>(n, [&](auto count) {
          constexpr int kCount = decltype(count)::value;
          const float* first = q + (first_row + r) * dim;
          float* out = scores + r * kScoreStride + tile * kKvTile;
          if (r == 0) {
            integer_score_rows<Simd, kCount, true>(first, dim, tiles.k[tile], ahead, out);
          } else {
            integer_score_rows<Simd, kCount, false>(first, dim, tiles.k[tile], ahead, out);
          }
        });
      }
    }
  }

  // Spoils the weights.
  static void values(float* weights, int rows, int dim, const char* const* tiles, int lo, int hi, float* out) {
    for (int r = 0; r < rows; r += kRows) {
      const int n = rows - r < kRows ? rows - r : kRows;
      float* first = weights + r * kScoreStride;
      float scales[kRows];
      for (int i = 0; i < n; ++i) scales[i] = round_weights<Simd>(first + i * kScoreStride, dim, tiles, lo, hi);
      dispatch_rows<kRows>(n, [&](auto count) {
        constexpr int kCount = decltype(count)::value;
        if (r == 0) {
          integer_value_rows<Simd, kCount, true>(first, scales, dim, tiles, lo, hi, out);
        } else {
          integer_value_rows<Simd, kCount, false>(first, scales, dim, tiles, lo, hi, out + r * dim);
        }
      });
    }
  }

 private:
  static constexpr int kRows = Simd::kIntegerRows;
};

}  // namespace
}  // namespace octavo
