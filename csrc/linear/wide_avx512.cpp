// Integer formats with AVX512-VNNI for many rows: weights become the 16-bit integers e*q + z, and vpdpwssd multiplies two inputs
// of 16 columns with the 14-bit activations of every row of a tile.
//
// Expansion runs in units that products leave idle, or nearly so. Where a panel meets several tiles, the first one keeps what it
// expands in memory, and the others only load it. 32-bit sums hold as many products as the rows' own magnitudes allow
// (WideNorms); then their upper halves move into others. However often that happens, the result is the same exact integer.
#include <algorithm>
#include <utility>

#include "common/prefetch.h"
#include "linear/read_ahead.h"
#include "linear/vectors_avx512.h"
#include "linear/wide_norms.h"

namespace octavo {
namespace {

// Tiles whose rows stay in a core's own cache while all panels pass by.
constexpr int64_t kCachedBytes = int64_t{512} << 10;
constexpr int64_t kCachedTiles = 16;
constexpr int64_t kMostKept = 8192;  // inputs of a panel whose expanded weights are kept

using Pair = int32_t __attribute__((may_alias));

// sum + the products of weights with two inputs of a row. From intrinsics GCC 12 makes loads of their own and spills sums.
[[gnu::always_inline]] inline __m512i add_products(__m512i sum, __m512i weights, const int16_t* inputs) {
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weights), "m"(*reinterpret_cast<const Pair*>(inputs)));
  return sum;
}

// The lower sums of 16 columns for rows R... of a tile: packs instead of loops, so that compilers keep them in registers. With few
// rows there are two of each, for products that add to one sum wait for each other.
template <int... R>
struct TileSums {
  static constexpr int kRows = sizeof...(R), kChains = kRows < 9 ? 2 : 1;
  const int16_t* inputs;  // of the first row in the block of 32 at hand
  __m512i low[kRows][kChains] = {};

  // Weights of inputs at, at + 1 of the block.
  [[gnu::always_inline]] inline void add(int chain, __m512i weights, int64_t at) {
    ((low[R][chain % kChains] = add_products(low[R][chain % kChains], weights, inputs + at + 32 * R)), ...);
  }
  // Moves all but 16 bits into the upper sums, which the first time it sets.
  template <bool kFirst>
  [[gnu::always_inline]] inline void carry(__m512i* high) {
    (carry<kFirst>(low[R], high[R]), ...);
  }
  [[gnu::always_inline]] static inline __m512i joined(const __m512i (&sums)[kChains]) {
    return kChains == 2 ? _mm512_add_epi32(sums[0], sums[kChains - 1]) : sums[0];
  }

 private:
  template <bool kFirst>
  [[gnu::always_inline]] static inline void carry(__m512i (&sums)[kChains], __m512i& upper) {
    const __m512i sum = joined(sums), more = _mm512_srai_epi32(sum, 16);
    upper = kFirst ? more : _mm512_add_epi32(upper, more);
    sums[0] = _mm512_and_si512(sum, _mm512_set1_epi32(0xffff));
    if constexpr (kChains == 2) sums[1] = _mm512_setzero_si512();
  }
};

// How many kSumUnit the sums 65536 * high + low of 16 columns hold; kNarrow: where that fits 32 bits.
template <bool kNarrow>
inline __m512 count_wide_units(__m512i high, __m512i low) {
  static_assert(kSumUnit == 256);
  if constexpr (kNarrow)
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), _mm512_srai_epi32(low, 8)));
  const auto eight = [](__m256i upper, __m256i lower) {
    return _mm512_fmadd_pd(_mm512_cvtepi32_pd(upper), _mm512_set1_pd(65536.0), _mm512_cvtepi32_pd(lower));
  };
  return count_units({eight(_mm512_castsi512_si256(high), _mm512_castsi512_si256(low)),
                      eight(_mm512_extracti64x4_epi64(high, 1), _mm512_extracti64x4_epi64(low, 1))});
}

// Writes the sums 65536 * high + low, or low alone, of rows [row, row + count).
template <bool kHigh, bool kNarrow>
void write_rows(const LinearCall& call, const __m512i* high, const __m512i* low, int64_t count, __m512 unit_value,
                int64_t row, int64_t column) {
  for (int64_t r = 0; r < count; ++r) {
    const __m512i upper = kHigh ? high[r] : _mm512_setzero_si512();
    write_units16(call, count_wide_units<kNarrow>(upper, low[r]), unit_value, row + r, column);
  }
}

[[gnu::always_inline]] inline __m512i weights_of(__m512i codes, const PairScales& scales) {
  return _mm512_add_epi16(_mm512_mullo_epi16(codes, scales.e), scales.z);
}

// The quads First and First + 1 behind `codes`, from input `at` of the block on.
template <class F, int First, class Sink>
[[gnu::always_inline]] inline void add_quads(const uint8_t* codes, const PairScales& scales, int64_t at, Sink& sink) {
#pragma GCC unroll 2
  for (int quad = 0; quad < 2; ++quad) {
    const __m512i all = quad_codes<F>(codes, First + quad);
    sink.add(0, weights_of(_mm512_and_si512(all, _mm512_set1_epi16(0x00ff)), scales), at + 4 * quad);
    sink.add(1, weights_of(_mm512_srli_epi16(all, 8), scales), at + 4 * quad + 2);
  }
}

// Hands the weights of inputs [k, last), all of one group, to sink.add().
template <class F, class Sink>
[[gnu::always_inline]] inline void expand_inputs(const uint8_t* panel, const PairScales& scales, int64_t k, int64_t last,
                                                 Sink& sink) {
  const uint8_t* codes = panel + k * kPanel * F::kBits / 8;
  if constexpr (F::kBits == 4) {
    const __m512i nibble = _mm512_set1_epi16(15);
    for (int64_t at = 0; at < 16; at += 4, codes += 64) {
      const __m512i all = load(codes);
      sink.add(0, weights_of(_mm512_and_si512(all, nibble), scales), at);
      sink.add(1, weights_of(_mm512_and_si512(_mm512_srli_epi16(all, 8), nibble), scales), at + 2);
      sink.add(0, weights_of(_mm512_and_si512(_mm512_srli_epi16(all, 4), nibble), scales), at + 16);
      sink.add(1, weights_of(_mm512_srli_epi16(all, 12), scales), at + 18);
    }
  } else {
    // A run may be of 8 inputs, and codes of 6 bits lie in sixteens.
    for (codes -= k % 16 * kPanel * F::kBits / 8; k < last; codes += 2 * kPanel * F::kBits) {
      if (k % 16 == 0) {
        add_quads<F, 0>(codes, scales, k % 32, sink);
        k += 8;
        if (k == last) return;
      }
      add_quads<F, 2>(codes, scales, k % 32, sink);
      k += 8;
    }
  }
}

// The weights of a panel, as its codes.
template <class F>
class Codes {
 public:
  static constexpr int64_t kGroup = F::kGroup;
  static constexpr int kLeastRows = 1;

  Codes(const LinearCall& call, const uint8_t* panel, int64_t kp)
      : panel_(panel), scales_(panel + F::scale_offset(kp)), ahead_(call) {}

  // Hands the weights of inputs [k, last), all of one group, to sink.add().
  template <class Sink>
  [[gnu::always_inline]] inline void expand(int64_t k, int64_t last, Sink& sink) const {
    const int64_t group = k / kGroup;
    ahead_.far<F>(panel_, group);
    expand_inputs<F>(panel_, load_pair_scales<F>(scales_ + group * F::kScaleBytes), k, last, sink);
  }

 private:
  const uint8_t *panel_, *scales_;
  const ReadAhead ahead_;
};

// The same, expanded: per pair of inputs a vector.
class Expanded {
 public:
  static constexpr int64_t kGroup = 32;
  static constexpr int kLeastRows = 1;

  explicit Expanded(const uint8_t* weights) : weights_(weights) {}

  template <class Sink>
  [[gnu::always_inline]] inline void expand(int64_t k, int64_t last, Sink& sink) const {
    for (const uint8_t* from = weights_ + k * kPanel * 2; k < last; k += 4, from += 128) {
      sink.add(0, load(from), k % 32);
      sink.add(1, load(from + 64), k % 32 + 2);
    }
  }

 private:
  const uint8_t* weights_;
};

// Its codes, whose expanded weights are kept in memory too: for the first of several tiles, which is more than half full.
template <class F>
class KeptCodes : public Codes<F> {
 public:
  static constexpr int kLeastRows = WideTiles::kMostRows / 2 + 1;

  KeptCodes(const Codes<F>& codes, uint8_t* to) : Codes<F>(codes), to_(to) {}

  template <class Sums>
  [[gnu::always_inline]] inline void expand(int64_t k, int64_t last, Sums& sums) const {
    Keeper<Sums> keeper{sums, to_ + k / 32 * 32 * kPanel * 2};
    Codes<F>::expand(k, last, keeper);
  }

 private:
  template <class Sums>
  struct Keeper {
    Sums& sums;
    uint8_t* block;
    [[gnu::always_inline]] inline void add(int chain, __m512i weights, int64_t at) {
      _mm512_store_si512(block + at * kPanel * 2, weights);
      sums.add(chain, weights, at);
    }
  };
  uint8_t* to_;
};

// What all tiles share of a panel.
struct Panel {
  const WideTiles& layout;
  int64_t column;
  __m512 unit_value;
  bool narrow;  // whether counts of units fit 32 bits
};

// A panel for the rows R... of a tile, at most `run` products in a 32-bit sum.
template <class Weights, int... R>
void panel_tile(const LinearCall& call, const Panel& panel, const Weights& weights, int64_t tile, int64_t run,
                std::integer_sequence<int, R...>) {
  const WideTiles& layout = panel.layout;
  const int64_t kp = layout.kp, row = tile * layout.height;
  const int16_t* const inputs = layout.values(call.prepared, tile);
  // In prefill these lines come from memory: asked for when they are written, each would be waited for.
  for (int r = 0; r < static_cast<int>(sizeof...(R)); ++r)
    prefetch_to_write(call.out + (row + r) * call.ldo + panel.column);
  TileSums<R...> sums;
  __m512i high[sizeof...(R)];
  for (int64_t first = 0; first < kp; first += run) {
    if (first == run) {
      sums.template carry<true>(high);
    } else if (first > 0) {
      sums.template carry<false>(high);
    }
    const int64_t end = std::min(first + run, kp);
    for (int64_t k = first, last; k < end; k = last) {
      last = std::min((k / Weights::kGroup + 1) * Weights::kGroup, end);
      sums.inputs = inputs + layout.offset(k) - k % 32;
      weights.expand(k, last, sums);
    }
  }
  const __m512i low[] = {sums.joined(sums.low[R])...};
  const auto write_sums = panel.narrow ? write_rows<true, true> : write_rows<true, false>;
  const auto write = kp > run ? write_sums : write_rows<false, true>;
  write(call, high, low, sizeof...(R), panel.unit_value, row, panel.column);
}

template <class Weights, int Rows>
void panel_tile_of(const LinearCall& call, const Panel& panel, const Weights& weights, int64_t tile, int64_t run) {
  panel_tile(call, panel, weights, tile, run, std::make_integer_sequence<int, Rows>{});
}

// The kernel for so many rows.
template <class Weights, int... I>
auto kernel_for(int64_t rows, std::integer_sequence<int, I...>) {
  static constexpr void (*kKernels[])(const LinearCall&, const Panel&, const Weights&, int64_t, int64_t) = {
      panel_tile_of<Weights, Weights::kLeastRows + I>...};
  return kKernels[rows - Weights::kLeastRows];
}

// A panel for tiles [begin, end). runs: of each.
template <class Weights>
void panel_tiles(const LinearCall& call, const Panel& panel, const Weights& weights, int64_t begin, int64_t end,
                 const int64_t* runs) {
  for (int64_t tile = begin; tile < end; ++tile) {
    constexpr int kCount = WideTiles::kMostRows - Weights::kLeastRows + 1;
    const auto kernel = kernel_for<Weights>(panel.layout.rows_of(tile), std::make_integer_sequence<int, kCount>{});
    kernel(call, panel, weights, tile, runs[tile - begin]);
  }
}

// All panels for tiles [begin, end), at most kCachedTiles.
template <class F>
void tile_group(const LinearCall& call, const WideTiles& layout, int64_t begin, int64_t end) {
  int64_t runs[kCachedTiles];
  for (int64_t tile = begin; tile < end; ++tile)
    runs[tile - begin] =
        safe_run<F>(layout.rows_of(tile), [&](int64_t row) { return layout.norms(call.prepared, tile, row); });
  for (int64_t number = call.panel_begin; number < call.panel_end; ++number) {
    const uint8_t* const bytes = call.weight->panel(number);
    const Panel panel{layout, number * kPanel, unit_values(bytes + F::row_scale_offset(layout.kp)),
                      counts_are_narrow<F>(layout.kp)};
    const Codes<F> codes(call, bytes, layout.kp);
    if (end - begin == 1 || layout.kp > kMostKept) {
      panel_tiles(call, panel, codes, begin, end, runs);
    } else {
      panel_tiles(call, panel, KeptCodes<F>(codes, call.scratch), begin, begin + 1, runs);
      panel_tiles(call, panel, Expanded(call.scratch), begin + 1, end, runs + 1);
    }
  }
}

}  // namespace

int64_t wide_scratch_bytes_avx512() { return kMostKept * kPanel * 2; }

void wide_linear_avx512(const LinearCall& call) {
  const WideTiles layout(call.rows, call.weight->k());
  const int64_t most = std::clamp<int64_t>(kCachedBytes / layout.tile_bytes(), 1, kCachedTiles);
  visit_int_format(call.weight->format(), [&](auto f) {
    for (int64_t tile = 0; tile < layout.count; tile += most)
      tile_group<decltype(f)>(call, layout, tile, std::min(tile + most, layout.count));
  });
}

}  // namespace octavo
