// Integer formats and 8-bit activations with AVX2, for any number of rows, 8 columns at a time.
//
// 4- and 6-bit codes: vpmaddubsw, and sums in 16 bits of 16 products of at most 15 * 127 a lane, or of 4 of at most 63 * 127.
// Pairs of products with 8-bit codes do not fit 16 bits, so these are widened, and vpmaddwd adds in 32.
#include <immintrin.h>

#include "linear/byte_rows.h"
#include "linear/read_ahead.h"
#include "linear/vectors_avx2.h"

namespace octavo {
namespace {

// Tiles whose rows stay in a core's own cache while all panels pass by.
constexpr int64_t kCachedBytes = int64_t{256} << 10;

// Groups of the weight in one of the inputs.
template <class F>
constexpr int kParts = kByteGroup / F::kGroup;

// Both halves of a panel broadcast the same inputs: GCC would keep them for the second one, and spill.
inline void forget([[maybe_unused]] const WideByteGroup*& rows) {
#if defined(__GNUC__)
  asm("" : "+r"(rows));
#endif
}

// e of 8 columns as int32.
template <class F>
__m256i load_e(const uint8_t* scales, int half) {
  if constexpr (F::kAffine) return _mm256_srai_epi32(_mm256_slli_epi32(load(scales + 32 * half), 16), 16);
  return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + 16 * half)));
}

// e twice, as 16-bit lanes.
template <class F>
__m256i load_e_pairs(const uint8_t* scales, int half) {
  if constexpr (!F::kAffine) return doubled_scales(scales + 16 * half);
  const __m256i ez = load(scales + 32 * half);
  return _mm256_blend_epi16(ez, _mm256_slli_epi32(ez, 16), 0xaa);
}

// Whether 16-bit sums begin with what takes away the offset of the codes. A lane's 16 codes, less their offset, and the other
// lane's inputs then give 32 terms of at most 8 * 127.
template <class F>
constexpr bool kBeginsWithOffset = F::kBits == 4 && !F::kAffine;

// Of 8 columns z * sum(a), or where there is no z, what takes away the offset of the codes.
template <class F>
[[gnu::always_inline]] inline __m256i offset_value(const uint8_t* scales, int half, const ByteGroupFacts& row) {
  if constexpr (kBeginsWithOffset<F>) {
    return _mm256_setzero_si256();
  } else if constexpr (F::kAffine) {
    // z for the first and for the second half of the inputs, in the 16-bit halves of each lane.
    const __m256i first = load(scales + 32 * half), last = load(scales + (kParts<F> - 1) * F::kScaleBytes + 32 * half);
    const __m256i z = _mm256_blend_epi16(_mm256_srli_epi32(first, 16), last, 0xaa);
    return _mm256_madd_epi16(z, broadcast4(row.sums));
  } else {
    const auto part = [&](int number, int32_t bytes) {
      const __m256i e = load_e<F>(scales + number * F::kScaleBytes, half);
      return _mm256_mullo_epi32(e, _mm256_srai_epi32(_mm256_set1_epi32(bytes), 8 - F::kBits));
    };
    if constexpr (kParts<F> == 1) return part(0, row.bytes[0] + row.bytes[1]);
    return _mm256_add_epi32(part(0, row.bytes[0]), part(1, row.bytes[1]));
  }
}

// sum((e*q + z) * a) over 32 inputs for each half of a panel's columns and each row; begun with the offset_value().
template <int Rows>
using Values = __m256i[2][Rows];

// Adds a quad's products to 16-bit sums. left, right: the codes of the first 8 columns and of the others.
template <int Rows>
[[gnu::always_inline]] inline void add_quad(__m256i left, __m256i right, const WideByteGroup* rows, int quad,
                                            Values<Rows>& sums) {
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    const __m256i inputs = broadcast4(rows[r].codes + 4 * quad);
    sums[0][r] = _mm256_add_epi16(sums[0][r], _mm256_maddubs_epi16(left, inputs));
    sums[1][r] = _mm256_add_epi16(sums[1][r], _mm256_maddubs_epi16(right, inputs));
    keep_order(sums[0][r], sums[1][r]);
  }
}

template <class F, int Rows>
[[gnu::always_inline]] inline void add_nibbles(const uint8_t* codes, const uint8_t* scales, const WideByteGroup* rows,
                                               Values<Rows>& values) {
  const __m256i nibble = _mm256_set1_epi8(15);
  Values<Rows> sums;
  for (int r = 0; r < Rows; ++r)
    sums[0][r] = sums[1][r] = kBeginsWithOffset<F> ? _mm256_set1_epi32(rows[r].nibble_start) : _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int vector = 0; vector < 4; ++vector) {
    const __m256i left = load(codes + 64 * vector), right = load(codes + 64 * vector + 32);
    add_quad<Rows>(_mm256_and_si256(left, nibble), _mm256_and_si256(right, nibble), rows, vector, sums);
    add_quad<Rows>(_mm256_and_si256(_mm256_srli_epi16(left, 4), nibble),
                   _mm256_and_si256(_mm256_srli_epi16(right, 4), nibble), rows, vector + 4, sums);
  }
  for (int half = 0; half < 2; ++half) {
    const __m256i e = load_e_pairs<F>(scales, half);
    for (int r = 0; r < Rows; ++r)
      values[half][r] = _mm256_add_epi32(values[half][r], _mm256_madd_epi16(sums[half][r], e));
  }
}

template <class F, int Rows>
[[gnu::always_inline]] inline void add_six_bits(const uint8_t* codes, const uint8_t* scales, const WideByteGroup* rows,
                                                Values<Rows>& values) {
#pragma GCC unroll 4
  for (int quad = 0; quad < 8; quad += 2) {
    const uint8_t* const of_group = scales + 4 * quad / F::kGroup * F::kScaleBytes;
    const __m256i left[] = {quad_codes<F>(codes, quad), quad_codes<F>(codes, quad + 1)};
    const __m256i right[] = {quad_codes<F>(codes + 32, quad), quad_codes<F>(codes + 32, quad + 1)};
    const __m256i left_e = load_e_pairs<F>(of_group, 0), right_e = load_e_pairs<F>(of_group, 1);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const __m256i first = broadcast4(rows[r].codes + 4 * quad), second = broadcast4(rows[r].codes + 4 * quad + 4);
      const auto both = [&](const __m256i* half) {
        return _mm256_add_epi16(_mm256_maddubs_epi16(half[0], first), _mm256_maddubs_epi16(half[1], second));
      };
      values[0][r] = _mm256_add_epi32(values[0][r], _mm256_madd_epi16(both(left), left_e));
      values[1][r] = _mm256_add_epi32(values[1][r], _mm256_madd_epi16(both(right), right_e));
      keep_order(values[0][r], values[1][r]);
    }
  }
}

template <class F, int Rows>
[[gnu::always_inline]] inline void add_bytes(const uint8_t* codes, const uint8_t* scales, const WideByteGroup* rows,
                                             Values<Rows>& values) {
  static_assert(F::kGroup == 32);
  const __m256i zero = _mm256_setzero_si256();
  for (int half = 0; half < 2; ++half) {
    forget(rows);
    __m256i first[Rows], second[Rows];  // columns 0, 1, 4, 5 and 2, 3, 6, 7; two lanes each
    for (int r = 0; r < Rows; ++r) first[r] = second[r] = zero;
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad) {
      const __m256i bytes = load(codes + 64 * quad + 32 * half);
      const __m256i low = _mm256_unpacklo_epi8(bytes, zero), high = _mm256_unpackhi_epi8(bytes, zero);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const __m256i inputs = broadcast8(rows[r].values + 4 * quad);
        first[r] = _mm256_add_epi32(first[r], _mm256_madd_epi16(low, inputs));
        second[r] = _mm256_add_epi32(second[r], _mm256_madd_epi16(high, inputs));
        keep_order(first[r], second[r]);
      }
    }
    const __m256i e = load_e<F>(scales, half);
    for (int r = 0; r < Rows; ++r)
      values[half][r] =
          _mm256_add_epi32(values[half][r], _mm256_mullo_epi32(_mm256_hadd_epi32(first[r], second[r]), e));
  }
}

// A panel for a tile of Rows rows.
template <class F, int Rows>
void panel_tile(const LinearCall& call, const ByteTiles256& layout, int64_t panel, int64_t tile) {
  const int64_t kp = padded_k(call.weight->k()), row = tile * layout.height;
  const uint8_t *const bytes = call.weight->panel(panel), *scales = bytes + F::scale_offset(kp), *codes = bytes;
  const WideByteGroup* rows = layout.tile(call.prepared, tile);
  const ReadAhead ahead(call);
  __m256 sums[2][Rows] = {};
  for (int64_t g = 0; g < layout.groups; ++g, rows += layout.height) {
    for (int part = 0; part < kParts<F>; ++part) {
      ahead.far<F>(bytes, kParts<F> * g + part);
      if constexpr (Rows <= 2) ahead.near<F>(bytes, kParts<F> * g + part);
    }
    Values<Rows> values;
    for (int half = 0; half < 2; ++half)
      for (int r = 0; r < Rows; ++r) values[half][r] = offset_value<F>(scales, half, rows[r].facts);
    if constexpr (F::kBits == 4)
      add_nibbles<F, Rows>(codes, scales, rows, values);
    else if constexpr (F::kBits == 6)
      add_six_bits<F, Rows>(codes, scales, rows, values);
    else
      add_bytes<F, Rows>(codes, scales, rows, values);
    for (int half = 0; half < 2; ++half)
      for (int r = 0; r < Rows; ++r)
        sums[half][r] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(values[half][r]), _mm256_set1_ps(rows[r].facts.scale), sums[half][r]);
    codes += kParts<F> * F::kCodeBytes;
    scales += kParts<F> * F::kScaleBytes;
  }
  const float* const row_scales = reinterpret_cast<const float*>(bytes + F::row_scale_offset(kp));
  for (int half = 0; half < 2; ++half)
    for (int r = 0; r < Rows; ++r)
      write_columns8(call, row + r, panel * kPanel + 8 * half,
                     _mm256_mul_ps(sums[half][r], _mm256_loadu_ps(row_scales + 8 * half)));
}

// All panels for tiles [begin, end).
template <class F>
void tile_group(const LinearCall& call, const ByteTiles256& layout, int64_t begin, int64_t end) {
  using Kernel = void (*)(const LinearCall&, const ByteTiles256&, int64_t, int64_t);
  static constexpr Kernel kKernels[] = {panel_tile<F, 1>, panel_tile<F, 2>, panel_tile<F, 3>, panel_tile<F, 4>};
  static_assert(std::size(kKernels) == ByteTiles256::kMostRows);
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel)
    for (int64_t tile = begin; tile < end; ++tile) kKernels[layout.rows_of(tile) - 1](call, layout, panel, tile);
}

}  // namespace

void byte_linear_avx2(const LinearCall& call) {
  const ByteTiles256 layout(call.rows, call.weight->k());
  const int64_t fit = kCachedBytes / layout.tile_bytes(), most = fit > 0 ? fit : 1;
  visit_int_format(call.weight->format(), [&](auto f) {
    for (int64_t tile = 0; tile < layout.count; tile += most)
      tile_group<decltype(f)>(call, layout, tile, tile + most < layout.count ? tile + most : layout.count);
  });
}

}  // namespace octavo
