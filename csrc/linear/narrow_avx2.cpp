// Integer formats with AVX2 for few rows; those of 4 bits in nibble_avx2.cpp. Codes of 6 and 8 bits are multiplied as they are
// stored, by vpmaddwd with the 14-bit activations, and a group's sum with its e and z, into 64-bit sums.
#include <immintrin.h>

#include "linear/narrow_panels_avx2.h"
#include "linear/read_ahead.h"

namespace octavo {
namespace {

// One row's products of one group with 8 columns.
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
  ByteSums sums[Rows];
#pragma GCC unroll 8
  for (int quad = 0; quad < F::kGroup / 4; ++quad) {
    const __m256i vector = quad_codes<F>(codes, quad);
    for (int r = 0; r < Rows; ++r) sums[r].add(vector, layout.values(rows[r]) + F::kGroup * group + 4 * quad);
  }
  for (int r = 0; r < Rows; ++r) totals[r] = sums[r].total();
}

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
  LongSums sums[Rows][2];
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
        sums[r][half].add_product(totals[r], e);
        sums[r][half].add_product(_mm256_set1_epi32(layout.sums(rows[r], F::kGroup)[g]), z);
      }
    }
  }
  write_panel<F>(call, panel, row, sums);
}

}  // namespace

void narrow_linear_avx2(const LinearCall& call) {
  visit_int_format(call.weight->format(), [&](auto f) {
    using F = decltype(f);
    if constexpr (F::kBits == 4)
      nibble_linear_avx2(call);
    else
      by_panels(call, panel_rows<F, 2>, panel_rows<F, 1>);
  });
}

}  // namespace octavo
