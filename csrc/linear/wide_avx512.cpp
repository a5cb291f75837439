// Integer formats with AVX512-VNNI for many rows: weights become the 16-bit integers e*q + z in registers, and vpdpwssd
// multiplies two inputs of 16 columns with the 14-bit activations of every row of a tile.
//
// Expansion runs in units that products leave idle. So it costs little from some rows on, is done again for every tile, and
// nothing is stored. 32-bit sums hold as many products as the rows' own magnitudes allow (WideNorms); then their upper halves
// move into others. However often that happens, the result is the same exact integer.
#include <algorithm>
#include <utility>

#include "linear/read_ahead.h"
#include "linear/vectors_avx512.h"
#include "linear/wide_norms.h"

namespace octavo {
namespace {

// Tiles whose rows stay in a core's own cache while all panels pass by.
constexpr int64_t kCachedBytes = int64_t{512} << 10;
constexpr int64_t kCachedTiles = 16;

using Pair = int32_t __attribute__((may_alias));

// sum + the products of weights with two inputs of a row. From intrinsics GCC 12 makes loads of their own and spills sums.
[[gnu::always_inline]] inline __m512i add_products(__m512i sum, __m512i weights, const int16_t* inputs) {
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weights), "m"(*reinterpret_cast<const Pair*>(inputs)));
  return sum;
}

// The sums of 16 columns for rows R... of a tile: packs instead of loops, so that compilers keep them in registers. With few
// rows there are two of each, for products that add to one sum wait for each other.
template <int... R>
struct TileSums {
  static constexpr int kRows = sizeof...(R), kChains = kRows < 9 ? 2 : 1;
  __m512i low[kRows][kChains] = {};
  __m512i high[kRows] = {};  // after carry() a sum is 65536 * high[r] + low[r][0]

  [[gnu::always_inline]] inline void add(int chain, __m512i weights, const int16_t* inputs) {
    ((low[R][chain % kChains] = add_products(low[R][chain % kChains], weights, inputs + 32 * R)), ...);
  }
  // Leaves 16 bits in the lower sums.
  [[gnu::always_inline]] inline void carry() { (carry(low[R], high[R]), ...); }

 private:
  [[gnu::always_inline]] static inline void carry(__m512i (&sums)[kChains], __m512i& upper) {
    __m512i sum = sums[0];
    if constexpr (kChains == 2) {
      sum = _mm512_add_epi32(sum, sums[1]);
      sums[1] = _mm512_setzero_si512();
    }
    upper = _mm512_add_epi32(upper, _mm512_srai_epi32(sum, 16));
    sums[0] = _mm512_and_si512(sum, _mm512_set1_epi32(0xffff));
  }
};

// Writes the sums 65536 * high + low of rows [row, row + count).
void write_rows(const LinearCall& call, const __m512i* high, const __m512i* low, int64_t count, const uint8_t* row_scales,
                int64_t row, int64_t column) {
  const __m512 scales = _mm512_loadu_ps(row_scales);
  const auto eight = [](__m256i a, __m256i b) {
    return _mm512_fmadd_pd(_mm512_cvtepi32_pd(a), _mm512_set1_pd(65536.0), _mm512_cvtepi32_pd(b));
  };
  for (int64_t r = 0; r < count; ++r) {
    const Sums16 sums{eight(_mm512_castsi512_si256(high[r]), _mm512_castsi512_si256(low[r])),
                      eight(_mm512_extracti64x4_epi64(high[r], 1), _mm512_extracti64x4_epi64(low[r], 1))};
    write_sums16(call, sums, scales, row + r, column);
  }
}

[[gnu::always_inline]] inline __m512i weights_of(__m512i codes, const PairScales& scales) {
  return _mm512_add_epi16(_mm512_mullo_epi16(codes, scales.e), scales.z);
}

// The quads First and First + 1 behind `codes`. inputs: those of the first row in the first one.
template <class F, int First, class Sums>
[[gnu::always_inline]] inline void add_quads(const uint8_t* codes, const PairScales& scales, const int16_t* inputs,
                                             Sums& sums) {
#pragma GCC unroll 2
  for (int quad = 0; quad < 2; ++quad) {
    const __m512i all = quad_codes<F>(codes, First + quad);
    sums.add(0, weights_of(_mm512_and_si512(all, _mm512_set1_epi16(0x00ff)), scales), inputs + 4 * quad);
    sums.add(1, weights_of(_mm512_srli_epi16(all, 8), scales), inputs + 4 * quad + 2);
  }
}

// Inputs [k, last), all of one group. inputs: those of the tile's first row.
template <class F, class Sums>
[[gnu::always_inline]] inline void add_inputs(const uint8_t* panel, const PairScales& scales, int64_t k, int64_t last,
                                              const int16_t* inputs, Sums& sums) {
  const uint8_t* codes = panel + k * kPanel * F::kBits / 8;
  if constexpr (F::kBits == 4) {
    const __m512i nibble = _mm512_set1_epi16(15);
    for (int vector = 0; vector < 4; ++vector, codes += 64, inputs += 4) {
      const __m512i all = load(codes);
      sums.add(0, weights_of(_mm512_and_si512(all, nibble), scales), inputs);
      sums.add(1, weights_of(_mm512_and_si512(_mm512_srli_epi16(all, 8), nibble), scales), inputs + 2);
      sums.add(0, weights_of(_mm512_and_si512(_mm512_srli_epi16(all, 4), nibble), scales), inputs + 16);
      sums.add(1, weights_of(_mm512_srli_epi16(all, 12), scales), inputs + 18);
    }
  } else {
    // A run may be of 8 inputs, and codes of 6 bits lie in sixteens.
    for (codes -= k % 16 * kPanel * F::kBits / 8; k < last; codes += 2 * kPanel * F::kBits) {
      if (k % 16 == 0) {
        add_quads<F, 0>(codes, scales, inputs, sums);
        k += 8, inputs += 8;
        if (k == last) return;
      }
      add_quads<F, 2>(codes, scales, inputs, sums);
      k += 8, inputs += 8;
    }
  }
}

// A panel for the rows R... of a tile, at most `run` products in a 32-bit sum.
template <class F, int... R>
void panel_tile(const LinearCall& call, const WideTiles& layout, int64_t panel, int64_t tile, int64_t run,
                std::integer_sequence<int, R...>) {
  const int64_t kp = layout.kp, row = tile * layout.height;
  const uint8_t *const bytes = call.weight->panel(panel), *const scales = bytes + F::scale_offset(kp);
  const int16_t* const inputs = layout.values(call.prepared, tile);
  // In prefill these lines come from memory: asked for when they are written, each would be waited for.
  for (int r = 0; r < static_cast<int>(sizeof...(R)); ++r)
    __builtin_prefetch(call.out + (row + r) * call.ldo + panel * kPanel, 1);
  const ReadAhead ahead(call);
  TileSums<R...> sums;
  for (int64_t first = 0; first < kp; first += run) {
    const int64_t end = std::min(first + run, kp);
    for (int64_t k = first, last; k < end; k = last) {
      const int64_t group = k / F::kGroup;
      last = std::min((group + 1) * F::kGroup, end);
      ahead.far<F>(bytes, group);
      add_inputs<F>(bytes, load_pair_scales<F>(scales + group * F::kScaleBytes), k, last, inputs + layout.offset(k), sums);
    }
    sums.carry();
  }
  const __m512i low[] = {sums.low[R][0]...}, high[] = {sums.high[R]...};
  write_rows(call, high, low, sizeof...(R), bytes + F::row_scale_offset(kp), row, panel * kPanel);
}

template <class F, int Rows>
void panel_tile_of(const LinearCall& call, const WideTiles& layout, int64_t panel, int64_t tile, int64_t run) {
  panel_tile<F>(call, layout, panel, tile, run, std::make_integer_sequence<int, Rows>{});
}

// All panels for tiles [begin, end), at most kCachedTiles.
template <class F, int... I>
void tile_group(const LinearCall& call, const WideTiles& layout, int64_t begin, int64_t end,
                std::integer_sequence<int, I...>) {
  using Kernel = void (*)(const LinearCall&, const WideTiles&, int64_t, int64_t, int64_t);
  static constexpr Kernel kKernels[] = {panel_tile_of<F, I + 1>...};
  int64_t runs[kCachedTiles];
  for (int64_t tile = begin; tile < end; ++tile)
    runs[tile - begin] =
        safe_run<F>(layout.rows_of(tile), [&](int64_t row) { return layout.norms(call.prepared, tile, row); });
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel)
    for (int64_t tile = begin; tile < end; ++tile)
      kKernels[layout.rows_of(tile) - 1](call, layout, panel, tile, runs[tile - begin]);
}

}  // namespace

void wide_linear_avx512(const LinearCall& call) {
  const WideTiles layout(call.rows, call.weight->k());
  const int64_t most = std::clamp<int64_t>(kCachedBytes / layout.tile_bytes(), 1, kCachedTiles);
  visit_int_format(call.weight->format(), [&](auto f) {
    for (int64_t tile = 0; tile < layout.count; tile += most)
      tile_group<decltype(f)>(call, layout, tile, std::min(tile + most, layout.count),
                              std::make_integer_sequence<int, WideTiles::kMostRows>{});
  });
}

}  // namespace octavo
