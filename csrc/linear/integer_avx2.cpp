// Integer formats with AVX2: vpmaddubsw of unsigned codes and signed 7-bit planes, which cannot saturate
// (2 * 255 * 64 < 2^15).
#include <immintrin.h>

#include <cstring>

#include "linear/kernels.h"

namespace octavo {
namespace {

constexpr int kRows = 2;  // rows of one pass

__m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

__m256i quad_at(const int8_t* plane) {
  int32_t quad;
  std::memcpy(&quad, plane, 4);
  return _mm256_set1_epi32(quad);
}

// sum of codes * plane over one group for 8 columns (one half of a panel), plus `start`.
template <class F>
__m256i group_products(const uint8_t* codes, const int8_t* plane, __m256i start) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (F::kBits == 4) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i sum = _mm256_setzero_si256();  // int16: 16 products of at most 15 * 64
    for (int vector = 0; vector < 4; ++vector) {
      const __m256i both = load(codes + 64 * vector);
      const __m256i low = _mm256_and_si256(both, nibble), high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(low, quad_at(plane + 4 * vector)));
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(high, quad_at(plane + 16 + 4 * vector)));
    }
    return _mm256_add_epi32(start, _mm256_madd_epi16(sum, ones));
  } else {
    for (int quad = 0; quad < F::kGroup / 4; ++quad) {
      const __m256i products = _mm256_maddubs_epi16(load(codes + 64 * quad), quad_at(plane + 4 * quad));
      start = _mm256_add_epi32(start, _mm256_madd_epi16(products, ones));
    }
    return start;
  }
}

// e (and z * the plane's sum) of 8 columns of one group.
struct Scales {
  __m256i e, ez;
};
template <class F>
Scales load_scales(const uint8_t* scales, int half) {
  if constexpr (F::kAffine) {
    const __m256i ez = load(scales + 32 * half);
    return {_mm256_srai_epi32(_mm256_slli_epi32(ez, 16), 16), ez};
  } else {
    return {_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + 16 * half))), _mm256_setzero_si256()};
  }
}

struct Sums {
  __m256d low, high;  // of columns 0-3 and 4-7, exact integers
};

// The exact integer sums of 8 columns for Rows rows.
template <class F, int Rows>
void half_panel(const uint8_t* panel, int half, int64_t kp, const VectorRow& layout, const uint8_t* const* rows, Sums* sums) {
  const int64_t groups = kp / F::kGroup, flush = F::kFlush / F::kGroup;
  for (int64_t first = 0; first < groups; first += flush) {
    __m256i total[Rows][2];
    for (int r = 0; r < Rows; ++r) total[r][0] = total[r][1] = _mm256_setzero_si256();
    const int64_t last = first + flush < groups ? first + flush : groups;
    for (int64_t g = first; g < last; ++g) {
      const Scales scales = load_scales<F>(panel + F::scale_offset(kp) + g * F::kScaleBytes, half);
      for (int r = 0; r < Rows; ++r)
        for (int low = 0; low < 2; ++low) {
          const __m256i sum = _mm256_set1_epi32(layout.sums(rows[r], F::kGroup, !F::kAffine, low)[g]);
          const __m256i start = F::kAffine ? _mm256_setzero_si256() : sum;
          const int8_t* const plane = layout.plane(rows[r], low) + g * F::kGroup;
          const __m256i product = group_products<F>(panel + g * F::kCodeBytes + 32 * half, plane, start);
          total[r][low] = _mm256_add_epi32(total[r][low], _mm256_mullo_epi32(product, scales.e));
          if constexpr (F::kAffine)
            total[r][low] = _mm256_add_epi32(total[r][low], _mm256_madd_epi16(scales.ez, sum));
        }
    }
    const __m256d weight = _mm256_set1_pd(128.0);
    for (int r = 0; r < Rows; ++r) {
      const __m256i high_plane = total[r][0], low_plane = total[r][1];
      const auto join = [&](__m128i high, __m128i low) {
        return _mm256_add_pd(_mm256_mul_pd(_mm256_cvtepi32_pd(high), weight), _mm256_cvtepi32_pd(low));
      };
      sums[r].low = _mm256_add_pd(sums[r].low, join(_mm256_castsi256_si128(high_plane), _mm256_castsi256_si128(low_plane)));
      sums[r].high = _mm256_add_pd(sums[r].high,
                                   join(_mm256_extracti128_si256(high_plane, 1), _mm256_extracti128_si256(low_plane, 1)));
    }
  }
}

// Scales the sums of columns [column, column + 8) and writes those that exist.
void write_row(const LinearCall& call, const Sums& sums, const float* row_scales, int64_t row, int64_t column) {
  const __m256d s = _mm256_set1_pd(static_cast<double>(reinterpret_cast<const float*>(call.prepared)[row]));
  const __m256d low = _mm256_mul_pd(sums.low, _mm256_mul_pd(s, _mm256_cvtps_pd(_mm_loadu_ps(row_scales))));
  const __m256d high = _mm256_mul_pd(sums.high, _mm256_mul_pd(s, _mm256_cvtps_pd(_mm_loadu_ps(row_scales + 4))));
  alignas(32) float values[8];
  _mm_store_ps(values, _mm256_cvtpd_ps(low));
  _mm_store_ps(values + 4, _mm256_cvtpd_ps(high));
  const float* const bias = call.weight->bias();
  float* const out = call.out + row * call.ldo + column;
  const int64_t count = call.weight->n() - column < 8 ? call.weight->n() - column : 8;
  for (int64_t c = 0; c < count; ++c) {
    const float value = bias ? values[c] + bias[column + c] : values[c];
    out[c] = call.accumulate ? out[c] + value : value;
  }
}

template <class F, int Rows>
void panel_rows(const LinearCall& call, int64_t panel, int64_t row) {
  const int64_t kp = padded_k(call.weight->k());
  const VectorRow layout(kp);
  const uint8_t* const bytes = call.weight->panel(panel);
  const uint8_t* rows[Rows];
  for (int r = 0; r < Rows; ++r) rows[r] = call.prepared + row_scales_bytes(call.rows) + (row + r) * layout.bytes();
  for (int half = 0; half < 2; ++half) {
    Sums sums[Rows];
    for (Sums& sum : sums) sum.low = sum.high = _mm256_setzero_pd();
    half_panel<F, Rows>(bytes, half, kp, layout, rows, sums);
    const float* const row_scales = reinterpret_cast<const float*>(bytes + F::row_scale_offset(kp)) + 8 * half;
    for (int r = 0; r < Rows; ++r) write_row(call, sums[r], row_scales, row + r, panel * kPanel + 8 * half);
  }
}

template <class F>
void all_panels(const LinearCall& call) {
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
    int64_t row = 0;
    for (; row + kRows <= call.rows; row += kRows) panel_rows<F, kRows>(call, panel, row);
    for (; row < call.rows; ++row) panel_rows<F, 1>(call, panel, row);
  }
}

}  // namespace

void integer_linear_avx2(const LinearCall& call) {
  visit_int_format(call.weight->format(), [&](auto f) { all_panels<decltype(f)>(call); });
}

}  // namespace octavo
