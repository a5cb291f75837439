// Integer formats with AVX2 for few rows: the codes are multiplied as they are stored, and a group's sum with its e and z.
//
// 4-bit codes: vpmaddubsw with the two 7-bit planes of the activations; a group's sums stay in 16 bits. Larger codes:
// vpmaddwd with the 14-bit activations. Group sums are scaled into 64-bit sums.
#include <immintrin.h>

#include "linear/read_ahead.h"
#include "linear/vectors_avx2.h"

namespace octavo {
namespace {

// One row's products of one group with 8 columns: 4-bit codes.
struct NibbleSums {
  __m256i high = _mm256_setzero_si256(), low = _mm256_setzero_si256();  // 16 products of at most 15 * 64 a lane

  // codes: of 8 columns, one quad of inputs; planes: that quad's.
  void add(__m256i codes, const uint8_t* planes) {
    high = _mm256_add_epi16(high, _mm256_maddubs_epi16(codes, broadcast4(planes)));
    low = _mm256_add_epi16(low, _mm256_maddubs_epi16(codes, broadcast4(planes + 4)));
    keep_order(high, low);
  }
  __m256i total() const {
    const __m256i weight = _mm256_set1_epi16(128), one = _mm256_set1_epi16(1);
    return _mm256_add_epi32(_mm256_madd_epi16(high, weight), _mm256_madd_epi16(low, one));
  }
};

// The same for larger codes, as bytes.
struct ByteSums {
  __m256i first = _mm256_setzero_si256(), second = _mm256_setzero_si256();  // columns 0, 1, 4, 5 and 2, 3, 6, 7; two lanes each

  // values: that quad's four activations.
  void add(__m256i codes, const int16_t* values) {
    const __m256i zero = _mm256_setzero_si256(), inputs = broadcast8(values);
    first = _mm256_add_epi32(first, _mm256_madd_epi16(_mm256_unpacklo_epi8(codes, zero), inputs));
    second = _mm256_add_epi32(second, _mm256_madd_epi16(_mm256_unpackhi_epi8(codes, zero), inputs));
    keep_order(first, second);
  }
  __m256i total() const { return _mm256_hadd_epi32(first, second); }
};

// Adds the products of one group with 8 columns to each row's sums. codes: at the first vector of these columns.
template <class F, int Rows, class Totals>
void group_totals(const uint8_t* codes, const NarrowRow& layout, const uint8_t* const* rows, int64_t group, Totals& totals) {
  if constexpr (F::kBits == 4) {
    const __m256i nibble = _mm256_set1_epi8(15);
    NibbleSums sums[Rows];
#pragma GCC unroll 4
    for (int vector = 0; vector < 4; ++vector) {
      const __m256i both = load(codes + 64 * vector);
      const __m256i low = _mm256_and_si256(both, nibble), high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
      for (int r = 0; r < Rows; ++r) {
        const uint8_t* const planes = layout.planes(rows[r]) + 64 * group + 8 * vector;
        sums[r].add(low, planes);
        sums[r].add(high, planes + 32);
      }
    }
    for (int r = 0; r < Rows; ++r) totals[r] = sums[r].total();
  } else {
    ByteSums sums[Rows];
#pragma GCC unroll 8
    for (int quad = 0; quad < F::kGroup / 4; ++quad) {
      const __m256i vector = quad_codes<F>(codes, quad);
      for (int r = 0; r < Rows; ++r) sums[r].add(vector, layout.values(rows[r]) + F::kGroup * group + 4 * quad);
    }
    for (int r = 0; r < Rows; ++r) totals[r] = sums[r].total();
  }
}

// 64-bit sums of the even and of the odd ones of 8 columns.
struct LongSums {
  __m256i even = _mm256_setzero_si256(), odd = _mm256_setzero_si256();

  // Adds a * b of 8 columns; int32 lanes.
  void add_product(__m256i a, __m256i b) {
    even = _mm256_add_epi64(even, _mm256_mul_epi32(a, b));
    odd = _mm256_add_epi64(odd, _mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32)));
  }
  Sums8 doubles() const {
    const __m256d even_columns = to_doubles(even), odd_columns = to_doubles(odd);  // 0 2 4 6 and 1 3 5 7
    const __m256d first = _mm256_unpacklo_pd(even_columns, odd_columns), second = _mm256_unpackhi_pd(even_columns, odd_columns);
    return {_mm256_permute2f128_pd(first, second, 0x20), _mm256_permute2f128_pd(first, second, 0x31)};
  }

 private:
  // Exact below 2^51: adding 1.5 * 2^52 leaves the integer in the mantissa.
  static __m256d to_doubles(__m256i values) {
    const __m256d magic = _mm256_set1_pd(6755399441055744.0);
    return _mm256_sub_pd(_mm256_castsi256_pd(_mm256_add_epi64(values, _mm256_castpd_si256(magic))), magic);
  }
};

// e and z of 8 columns of one group, as int32. Where there is no z, one that takes away what was added to the codes.
template <class F>
void load_scales(const uint8_t* scales, int half, __m256i& e, __m256i& z) {
  if constexpr (F::kAffine) {
    const __m256i ez = load(scales + 32 * half);
    e = _mm256_srai_epi32(_mm256_slli_epi32(ez, 16), 16);
    z = _mm256_srai_epi32(ez, 16);
  } else {
    e = _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + 16 * half)));
    z = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_setzero_si256(), e), F::kBits - 1);
  }
}

template <class F, int Rows>
void panel_rows(const LinearCall& call, int64_t panel, int64_t row) {
  const NarrowRow layout(call.weight->k());
  const int64_t kp = layout.kp;
  const uint8_t *const bytes = call.weight->panel(panel), *const scales = bytes + F::scale_offset(kp);
  const uint8_t* rows[Rows];
  for (int r = 0; r < Rows; ++r) rows[r] = layout.at(call, row + r);
  const ReadAhead ahead(call);
  LongSums sums[2][Rows];
  for (int64_t g = 0; g < kp / F::kGroup; ++g) {
    const uint8_t* const codes = bytes + g * F::kCodeBytes;
    ahead.far<F>(bytes, g);
    ahead.near<F>(bytes, g);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256i totals[Rows], e, z;
      group_totals<F, Rows>(codes + 32 * half, layout, rows, g, totals);
      load_scales<F>(scales + g * F::kScaleBytes, half, e, z);
      for (int r = 0; r < Rows; ++r) {
        sums[half][r].add_product(totals[r], e);
        sums[half][r].add_product(_mm256_set1_epi32(layout.sums(rows[r], F::kGroup)[g]), z);
      }
    }
  }
  const float* const row_scales = reinterpret_cast<const float*>(bytes + F::row_scale_offset(kp));
  for (int half = 0; half < 2; ++half)
    for (int r = 0; r < Rows; ++r)
      write_sums8(call, sums[half][r].doubles(), row_scales + 8 * half, row + r, panel * kPanel + 8 * half);
}

template <class F>
void all_panels(const LinearCall& call) {
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
    int64_t row = 0;
    for (; row + 2 <= call.rows; row += 2) panel_rows<F, 2>(call, panel, row);
    for (; row < call.rows; ++row) panel_rows<F, 1>(call, panel, row);
  }
}

}  // namespace

void narrow_linear_avx2(const LinearCall& call) {
  visit_int_format(call.weight->format(), [&](auto f) { all_panels<decltype(f)>(call); });
}

}  // namespace octavo
