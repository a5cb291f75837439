// Integer formats and 8-bit activations with AVX2, for any number of rows, 8 columns at a time.
//
// 4-bit codes: vpmaddubsw, and the products of 32 inputs add up in 16 bits, for a lane gets 16 of at most 15 * 127.
// Pairs of products with 8-bit codes do not fit 16 bits, so these are widened, and vpmaddwd adds in 32.
#include <immintrin.h>

#include <cstring>

#include "linear/byte_rows.h"
#include "linear/read_ahead.h"
#include "linear/vectors_avx2.h"

namespace octavo {
namespace {

// Tiles whose rows stay in a core's own cache while all panels pass by.
constexpr int64_t kCachedBytes = int64_t{256} << 10;

__m256i broadcast4(const void* from) {
  int32_t value;
  std::memcpy(&value, from, 4);
  return _mm256_set1_epi32(value);
}

__m256i broadcast8(const int16_t* from) {
  int64_t value;
  std::memcpy(&value, from, 8);
  return _mm256_set1_epi64x(value);
}

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

// z of 8 columns for the sums of the first and of the second half of 32 inputs, in the 16-bit halves of each lane.
template <class F>
__m256i load_z(const uint8_t* scales, int half) {
  if constexpr (F::kAffine) {
    const __m256i first = load(scales + 32 * half);
    const __m256i last = load(scales + (32 / F::kGroup - 1) * F::kScaleBytes + 32 * half);
    return _mm256_blend_epi16(_mm256_srli_epi32(first, 16), last, 0xaa);
  } else {
    // 4-bit codes are stored plus 8.
    const __m256i z = _mm256_slli_epi16(_mm256_sub_epi16(_mm256_setzero_si256(), load_e<F>(scales, half)), 3);
    return _mm256_blend_epi16(z, _mm256_slli_epi32(z, 16), 0xaa);
  }
}

// sum((e*q + z) * a) over 32 inputs for each half of a panel's columns and each row.
template <int Rows>
using Values = __m256i[2][Rows];

// Adds a quad's products with 4-bit codes to 16-bit sums. left, right: the codes of the first 8 columns and of the
// others.
template <int Rows>
[[gnu::always_inline]] inline void add_nibbles(__m256i left, __m256i right, const WideByteGroup* rows, int quad,
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
[[gnu::always_inline]] inline void nibble_values(const uint8_t* codes, const uint8_t* scales, const WideByteGroup* rows,
                                                 Values<Rows>& values) {
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int r = 0; r < Rows; ++r) values[0][r] = values[1][r] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int vector = 0; vector < 4; ++vector) {
    const __m256i left = load(codes + 64 * vector), right = load(codes + 64 * vector + 32);
    add_nibbles<Rows>(_mm256_and_si256(left, nibble), _mm256_and_si256(right, nibble), rows, vector, values);
    add_nibbles<Rows>(_mm256_and_si256(_mm256_srli_epi16(left, 4), nibble),
                      _mm256_and_si256(_mm256_srli_epi16(right, 4), nibble), rows, vector + 4, values);
  }
  for (int half = 0; half < 2; ++half) {
    const __m256i once = load_e<F>(scales, half), e = _mm256_blend_epi16(once, _mm256_slli_epi32(once, 16), 0xaa);
    const __m256i z = load_z<F>(scales, half);
    for (int r = 0; r < Rows; ++r)
      values[half][r] =
          _mm256_add_epi32(_mm256_madd_epi16(values[half][r], e), _mm256_madd_epi16(z, broadcast4(rows[r].facts.sums)));
  }
}

// Sums of 8-bit codes over one group of the weight for 8 columns. codes: at the first vector of these columns.
template <class F, int Rows>
[[gnu::always_inline]] inline void byte_sums(const uint8_t* codes, const WideByteGroup* rows, int part,
                                             __m256i (&sums)[Rows]) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i first[Rows], second[Rows];  // columns 0, 1, 4, 5 and 2, 3, 6, 7; two lanes each
  for (int r = 0; r < Rows; ++r) first[r] = second[r] = zero;
#pragma GCC unroll 8
  for (int quad = 0; quad < F::kGroup / 4; ++quad) {
    const __m256i bytes = load(codes + 64 * quad);
    const __m256i low = _mm256_unpacklo_epi8(bytes, zero), high = _mm256_unpackhi_epi8(bytes, zero);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const __m256i inputs = broadcast8(rows[r].values + part * F::kGroup + 4 * quad);
      first[r] = _mm256_add_epi32(first[r], _mm256_madd_epi16(low, inputs));
      second[r] = _mm256_add_epi32(second[r], _mm256_madd_epi16(high, inputs));
      keep_order(first[r], second[r]);
    }
  }
  for (int r = 0; r < Rows; ++r) sums[r] = _mm256_hadd_epi32(first[r], second[r]);
}

template <class F, int Rows>
[[gnu::always_inline]] inline void byte_values(const uint8_t* codes, const uint8_t* scales, const WideByteGroup* rows,
                                               Values<Rows>& values) {
  for (int half = 0; half < 2; ++half) {
    forget(rows);
    for (int r = 0; r < Rows; ++r)
      values[half][r] = F::kAffine ? _mm256_madd_epi16(load_z<F>(scales, half), broadcast4(rows[r].facts.sums))
                                   : _mm256_setzero_si256();
    for (int part = 0; part < 32 / F::kGroup; ++part) {
      __m256i sums[Rows];
      byte_sums<F, Rows>(codes + part * F::kCodeBytes + 32 * half, rows, part, sums);
      const __m256i e = load_e<F>(scales + part * F::kScaleBytes, half);
      for (int r = 0; r < Rows; ++r) {
        const int32_t* const offset = rows[r].facts.bytes;
        if constexpr (!F::kAffine)  // stored plus 128
          sums[r] =
              _mm256_add_epi32(sums[r], _mm256_set1_epi32(F::kGroup == 16 ? offset[part] : offset[0] + offset[1]));
        values[half][r] = _mm256_add_epi32(values[half][r], _mm256_mullo_epi32(sums[r], e));
      }
    }
  }
}

// A panel for a tile of Rows rows.
template <class F, int Rows>
void panel_tile(const LinearCall& call, const ByteTiles256& layout, int64_t panel, int64_t tile) {
  constexpr int kParts = kByteGroup / F::kGroup;  // groups of the weight in one of the inputs
  const int64_t kp = padded_k(call.weight->k()), row = tile * layout.height;
  const uint8_t *const bytes = call.weight->panel(panel), *scales = bytes + F::scale_offset(kp), *codes = bytes;
  const WideByteGroup* rows = layout.tile(call.prepared, tile);
  const ReadAhead ahead(call);
  __m256 sums[2][Rows] = {};
  for (int64_t g = 0; g < layout.groups; ++g, rows += layout.height) {
    for (int part = 0; part < kParts; ++part) {
      ahead.far<F>(bytes, kParts * g + part);
      if constexpr (Rows <= 2) ahead.near<F>(bytes, kParts * g + part);
    }
    Values<Rows> values;
    if constexpr (F::kBits == 4)
      nibble_values<F, Rows>(codes, scales, rows, values);
    else
      byte_values<F, Rows>(codes, scales, rows, values);
    for (int half = 0; half < 2; ++half)
      for (int r = 0; r < Rows; ++r)
        sums[half][r] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(values[half][r]), _mm256_set1_ps(rows[r].facts.scale), sums[half][r]);
    codes += kParts * F::kCodeBytes;
    scales += kParts * F::kScaleBytes;
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
