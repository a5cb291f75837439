// Integer formats and 8-bit activations with AVX512-VNNI, for any number of rows: the codes of a panel's 32 inputs are
// unpacked once for all rows of a tile, and vpdpbusd multiplies them as they are, 16 columns and four inputs at a time.
//
// 4-bit codes: a sum begins as 65536 * sum(a) + 32768 - 8 * sum(a). In the end its lower half is sum((q - 8) * a) +
// 32768, which 16 bits hold (8 * 127 * 32 < 32768), and its upper half still sum(a). So once the 32768 is taken off,
// one vpmaddwd multiplies both: with e and with z + 8e.
#include <algorithm>
#include <utility>

#include "common/prefetch.h"
#include "linear/byte_rows.h"
#include "linear/read_ahead.h"
#include "linear/vectors_avx512.h"

namespace octavo {
namespace {

// Tiles whose rows stay in a core's own cache while all panels pass by.
constexpr int64_t kCachedBytes = int64_t{512} << 10;

using Quad = int32_t __attribute__((may_alias));

// sum + the products of codes with four inputs of a row. From intrinsics GCC 12 makes loads of their own and spills.
[[gnu::always_inline]] inline __m512i add_products(__m512i sum, __m512i codes, const int8_t* inputs) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*reinterpret_cast<const Quad*>(inputs)));
  return sum;
}

[[gnu::always_inline]] inline __m512 add_scaled(__m512 sum, __m512i value, const float* scale) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(_mm512_cvtepi32_ps(value)), "m"(*scale));
  return sum;
}

// 32 inputs of a panel, unpacked. A row has kSums integer sums of equally many inputs: begin() starts one, and value()
// makes of them sum((e*q + z) * a).
template <class F>
struct GroupWeights;

template <bool Affine>
struct GroupWeights<IntFormat<4, 32, Affine>> {
  using F = IntFormat<4, 32, Affine>;
  static constexpr int kSums = 1;
  __m512i quads[8], scales;

  [[gnu::always_inline]] inline GroupWeights(const uint8_t* codes, const uint8_t* from) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i both[] = {load(codes), load(codes + 64), load(codes + 128), load(codes + 192)};
    quads[0] = _mm512_and_si512(both[0], nibble);
    quads[1] = _mm512_and_si512(both[1], nibble);
    quads[2] = _mm512_and_si512(both[2], nibble);
    quads[3] = _mm512_and_si512(both[3], nibble);
    quads[4] = _mm512_and_si512(_mm512_srli_epi16(both[0], 4), nibble);
    quads[5] = _mm512_and_si512(_mm512_srli_epi16(both[1], 4), nibble);
    quads[6] = _mm512_and_si512(_mm512_srli_epi16(both[2], 4), nibble);
    quads[7] = _mm512_and_si512(_mm512_srli_epi16(both[3], 4), nibble);
    if constexpr (Affine) {
      const __m512i ez = load(from);
      scales = _mm512_add_epi32(ez, _mm512_slli_epi32(ez, 19));  // 8e to z
    } else {
      scales = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
  }
  template <int>
  [[gnu::always_inline]] static inline __m512i begin(const ByteGroupFacts& row) {
    return _mm512_set1_epi32(row.nibbles);
  }
  [[gnu::always_inline]] inline __m512i value(const __m512i (&sums)[1], const ByteGroupFacts&) const {
    return _mm512_madd_epi16(_mm512_xor_si512(sums[0], _mm512_set1_epi32(32768)), scales);
  }
};

// Of 6 and 8 bits.
template <int Bits, int Group, bool Affine>
struct GroupWeights<IntFormat<Bits, Group, Affine>> {
  using F = IntFormat<Bits, Group, Affine>;
  static constexpr int kSums = 32 / Group;
  __m512i quads[8], e[kSums], z;

  [[gnu::always_inline]] inline GroupWeights(const uint8_t* codes, const uint8_t* from) {
    quads[0] = quad_codes<F>(codes, 0);
    quads[1] = quad_codes<F>(codes, 1);
    quads[2] = quad_codes<F>(codes, 2);
    quads[3] = quad_codes<F>(codes, 3);
    quads[4] = quad_codes<F>(codes, 4);
    quads[5] = quad_codes<F>(codes, 5);
    quads[6] = quad_codes<F>(codes, 6);
    quads[7] = quad_codes<F>(codes, 7);
    if constexpr (Affine) {
      const __m512i first = load(from), last = load(from + (kSums - 1) * F::kScaleBytes);
      e[0] = _mm512_srai_epi32(_mm512_slli_epi32(first, 16), 16);
      e[kSums - 1] = _mm512_srai_epi32(_mm512_slli_epi32(last, 16), 16);
      z = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(first, 16), last);
    } else {
      e[0] = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
      if constexpr (kSums == 2)
        e[1] = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + F::kScaleBytes)));
    }
  }
  template <int Sum>
  [[gnu::always_inline]] static inline __m512i begin(const ByteGroupFacts& row) {
    if constexpr (Affine) return _mm512_setzero_si512();
    const __m512i first = _mm512_set1_epi32(row.bytes[Sum]);
    const __m512i offset = kSums == 2 ? first : _mm512_add_epi32(first, _mm512_set1_epi32(row.bytes[1]));
    return _mm512_srai_epi32(offset, 8 - Bits);  // -kOffset * sum
  }
  [[gnu::always_inline]] inline __m512i value(const __m512i (&sums)[kSums], const ByteGroupFacts& row) const {
    __m512i total = _mm512_mullo_epi32(sums[0], e[0]);
    if constexpr (kSums == 2) total = _mm512_add_epi32(total, _mm512_mullo_epi32(sums[1], e[1]));
    if constexpr (Affine)
      total = _mm512_dpwssd_epi32(total, z, _mm512_set1_epi32(*reinterpret_cast<const Quad*>(row.sums)));
    return total;
  }
};

// Adds a group to the sums of rows First + I of a tile, which take turns: products that add to one sum wait for each
// other.
template <class Weights, int First, int... I>
[[gnu::always_inline]] inline void add_rows(const Weights& weights, const ByteGroup* rows, __m512* sums,
                                            std::integer_sequence<int, I...>) {
  constexpr int kLast = Weights::kSums - 1;
  __m512i products[sizeof...(I)][Weights::kSums];
  ((products[I][0] = Weights::template begin<0>(rows[First + I].facts)), ...);
  if constexpr (kLast == 1) ((products[I][1] = Weights::template begin<1>(rows[First + I].facts)), ...);
  const auto add = [&](auto quad, auto sum) __attribute__((always_inline)) {
    constexpr int kQuad = decltype(quad)::value, kSum = decltype(sum)::value;
    ((products[I][kSum] = add_products(products[I][kSum], weights.quads[kQuad], rows[First + I].codes + 4 * kQuad)),
     ...);
  };
  const auto both = [&](auto quad) __attribute__((always_inline)) {
    add(quad, std::integral_constant<int, 0>{});
    add(std::integral_constant<int, decltype(quad)::value + 4>{}, std::integral_constant<int, kLast>{});
  };
  both(std::integral_constant<int, 0>{});
  both(std::integral_constant<int, 1>{});
  both(std::integral_constant<int, 2>{});
  both(std::integral_constant<int, 3>{});
  ((sums[First + I] =
        add_scaled(sums[First + I], weights.value(products[I], rows[First + I].facts), &rows[First + I].facts.scale)),
   ...);
}

// The same for all rows from First on.
template <class Weights, int Rows, int First = 0>
[[gnu::always_inline]] inline void add_group(const Weights& weights, const ByteGroup* rows, __m512* sums) {
  constexpr int kAtOnce = std::min(4 / Weights::kSums, Rows - First);
  add_rows<Weights, First>(weights, rows, sums, std::make_integer_sequence<int, kAtOnce>{});
  if constexpr (First + kAtOnce < Rows) add_group<Weights, Rows, First + kAtOnce>(weights, rows, sums);
}

// A panel for a tile of Rows rows.
template <class F, int Rows>
void panel_tile(const LinearCall& call, const ByteTiles512& layout, int64_t panel, int64_t tile) {
  constexpr int kParts = kByteGroup / F::kGroup;  // groups of the weight in one of the inputs
  const int64_t kp = padded_k(call.weight->k()), row = tile * layout.height;
  const uint8_t *const bytes = call.weight->panel(panel), *const scales = bytes + F::scale_offset(kp);
  const ByteGroup* rows = layout.tile(call.prepared, tile);
  // In prefill these lines come from memory: asked for when they are written, each would be waited for.
  for (int r = 0; r < Rows; ++r) prefetch_to_write(call.out + (row + r) * call.ldo + panel * kPanel);
  const ReadAhead ahead(call);
  __m512 sums[Rows] = {};
  for (int64_t g = 0; g < layout.groups; ++g, rows += layout.height) {
    for (int part = 0; part < kParts; ++part) {
      ahead.far<F>(bytes, kParts * g + part);
      if constexpr (Rows <= 4) ahead.near<F>(bytes, kParts * g + part);
    }
    const GroupWeights<F> weights(bytes + kParts * g * F::kCodeBytes, scales + kParts * g * F::kScaleBytes);
    add_group<GroupWeights<F>, Rows>(weights, rows, sums);
  }
  const __m512 row_scales = _mm512_loadu_ps(bytes + F::row_scale_offset(kp));
  for (int r = 0; r < Rows; ++r) write_columns(call, row + r, panel * kPanel, _mm512_mul_ps(sums[r], row_scales));
}

// All panels for tiles [begin, end).
template <class F, int... I>
void tile_group(const LinearCall& call, const ByteTiles512& layout, int64_t begin, int64_t end,
                std::integer_sequence<int, I...>) {
  using Kernel = void (*)(const LinearCall&, const ByteTiles512&, int64_t, int64_t);
  static constexpr Kernel kKernels[] = {panel_tile<F, I + 1>...};
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel)
    for (int64_t tile = begin; tile < end; ++tile) kKernels[layout.rows_of(tile) - 1](call, layout, panel, tile);
}

}  // namespace

void byte_linear_avx512(const LinearCall& call) {
  const ByteTiles512 layout(call.rows, call.weight->k());
  const int64_t most = std::max<int64_t>(kCachedBytes / layout.tile_bytes(), 1);
  visit_int_format(call.weight->format(), [&](auto f) {
    for (int64_t tile = 0; tile < layout.count; tile += most)
      tile_group<decltype(f)>(call, layout, tile, std::min(tile + most, layout.count),
                              std::make_integer_sequence<int, ByteTiles512::kMostRows>{});
  });
}

}  // namespace octavo
