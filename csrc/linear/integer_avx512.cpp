// Integer formats with AVX512-VNNI for few rows: the codes are multiplied as they are stored, with the two 7-bit planes of the
// activations, and a group's sums with its e and z.
#include <cstring>

#include "linear/read_ahead.h"
#include "linear/vectors_avx512.h"

namespace octavo {
namespace {

__m512i broadcast(const void* from) {
  int32_t quad;
  std::memcpy(&quad, from, 4);
  return _mm512_set1_epi32(quad);
}

// What one pass reads of a row.
struct RowView {
  const int8_t* plane[2];
  const int32_t* sums[2];
};

// products[r][low] += codes * planes over one group.
template <class F, int Rows>
inline void add_group(const uint8_t* codes, const RowView* rows, int64_t k, __m512i (*products)[2]) {
  if constexpr (F::kBits == 4) {
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int vector = 0; vector < 4; ++vector) {
      const __m512i both = load(codes + 64 * vector);
      const __m512i low = _mm512_and_si512(both, nibble);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
      for (int r = 0; r < Rows; ++r)
        for (int p = 0; p < 2; ++p) {
          const int8_t* const plane = rows[r].plane[p] + k + 4 * vector;
          products[r][p] = _mm512_dpbusd_epi32(products[r][p], low, broadcast(plane));
          products[r][p] = _mm512_dpbusd_epi32(products[r][p], high, broadcast(plane + 16));
        }
    }
  } else {
#pragma GCC unroll 8
    for (int quad = 0; quad < F::kGroup / 4; ++quad) {
      const __m512i bytes = quad_codes<F>(codes, quad);
      for (int r = 0; r < Rows; ++r)
        for (int p = 0; p < 2; ++p)
          products[r][p] = _mm512_dpbusd_epi32(products[r][p], bytes, broadcast(rows[r].plane[p] + k + 4 * quad));
    }
  }
}

// Whether a group's z * sum is added with its products; else the products begin with what takes away the codes' offset.
template <class F>
constexpr bool kAddsOffset = F::kBits == 4 || F::kAffine;

// total += e * product (+ z * sum).
template <class F>
inline __m512i scale_group(__m512i total, __m512i product, __m512i scales, const int32_t* sum) {
  if constexpr (F::kBits == 4) {
    // The product fits 16 bits: one multiply-add of the pairs (product, sum) and (e, z).
    const __m512i pair = _mm512_ternarylogic_epi32(product, _mm512_set1_epi32(0xffff), broadcast(sum), 0xea);
    return _mm512_dpwssd_epi32(total, pair, scales);
  } else if constexpr (F::kAffine) {
    const __m512i e = _mm512_srai_epi32(_mm512_slli_epi32(scales, 16), 16);
    total = _mm512_dpwssd_epi32(total, scales, broadcast(sum));
    return _mm512_add_epi32(total, _mm512_mullo_epi32(product, e));
  } else {
    return _mm512_add_epi32(total, _mm512_mullo_epi32(product, scales));
  }
}

// Per column (e, z) as 16-bit lanes, or e alone as int32.
template <class F>
inline __m512i load_scales(const uint8_t* scales) {
  if constexpr (F::kAffine) return load(scales);
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  if constexpr (!kAddsOffset<F>) return _mm512_cvtepi16_epi32(narrow);
  const __m512i e = _mm512_cvtepu16_epi32(narrow);
  return _mm512_or_si512(e, _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), e), 16 + F::kBits - 1));
}

// The exact integer sums of a panel for Rows rows.
template <class F, Reading How, int Rows>
inline void panel_sums(const uint8_t* panel, int64_t kp, const ReadAhead& ahead, const RowView* rows, Sums16* sums) {
  const int64_t groups = kp / F::kGroup, flush = F::kFlush / F::kGroup;
  const uint8_t* const all_scales = panel + F::scale_offset(kp);
  for (int64_t first = 0; first < groups; first += flush) {
    __m512i total[Rows][2];
    for (int r = 0; r < Rows; ++r) total[r][0] = total[r][1] = _mm512_setzero_si512();
    const int64_t last = first + flush < groups ? first + flush : groups;
    for (int64_t g = first; g < last; ++g) {
      ahead.ask<F, How>(panel, groups, g);
      __m512i products[Rows][2];
      for (int r = 0; r < Rows; ++r)
        for (int p = 0; p < 2; ++p)
          products[r][p] = kAddsOffset<F> ? _mm512_setzero_si512()
                                          : _mm512_srai_epi32(broadcast(rows[r].sums[p] + g), 8 - F::kBits);
      add_group<F, Rows>(panel + g * F::kCodeBytes, rows, g * F::kGroup, products);
      const __m512i scales = load_scales<F>(all_scales + g * F::kScaleBytes);
      for (int r = 0; r < Rows; ++r)
        for (int p = 0; p < 2; ++p)
          total[r][p] = scale_group<F>(total[r][p], products[r][p], scales, rows[r].sums[p] + g);
    }
    const __m512d weight = _mm512_set1_pd(128.0);
    for (int r = 0; r < Rows; ++r) {
      const __m512i high = total[r][0], low = total[r][1];
      const auto join = [&](__m256i a, __m256i b) {
        return _mm512_fmadd_pd(_mm512_cvtepi32_pd(a), weight, _mm512_cvtepi32_pd(b));
      };
      sums[r].low = _mm512_add_pd(sums[r].low, join(_mm512_castsi512_si256(high), _mm512_castsi512_si256(low)));
      sums[r].high =
          _mm512_add_pd(sums[r].high, join(_mm512_extracti64x4_epi64(high, 1), _mm512_extracti64x4_epi64(low, 1)));
    }
  }
}

template <class F, Reading How, int Rows>
void panel_rows(const LinearCall& call, int64_t panel, int64_t row) {
  const int64_t kp = padded_k(call.weight->k());
  const VectorRow layout(kp);
  const uint8_t* const bytes = call.weight->panel(panel);
  RowView rows[Rows];
  Sums16 sums[Rows];
  for (int r = 0; r < Rows; ++r) {
    const uint8_t* const from = call.prepared + row_scales_bytes(call.rows) + (row + r) * layout.bytes();
    for (int p = 0; p < 2; ++p) {
      rows[r].plane[p] = layout.plane(from, p);
      rows[r].sums[p] = layout.sums(from, F::kGroup, !kAddsOffset<F>, p);
    }
    sums[r].low = sums[r].high = _mm512_setzero_pd();
  }
  panel_sums<F, How, Rows>(bytes, kp, ReadAhead(call), rows, sums);
  const __m512 unit_value = unit_values(bytes + F::row_scale_offset(kp));
  for (int r = 0; r < Rows; ++r) write_units16(call, count_units(sums[r]), unit_value, row + r, panel * kPanel);
}

template <class F, Reading How>
void all_panels(const LinearCall& call) {
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
    int64_t row = 0;
    for (; row + 4 <= call.rows; row += 4) panel_rows<F, How, 4>(call, panel, row);
    switch (call.rows - row) {
      case 1: panel_rows<F, How, 1>(call, panel, row); break;
      case 2: panel_rows<F, How, 2>(call, panel, row); break;
      case 3: panel_rows<F, How, 3>(call, panel, row); break;
      default: break;
    }
  }
}

}  // namespace

void integer_linear_avx512(const LinearCall& call) {
  visit_int_format(call.weight->format(), [&](auto f) {
    using F = decltype(f);
    switch (ReadAhead::reading<F>(call)) {
      case Reading::kTwice: return all_panels<F, Reading::kTwice>(call);
      case Reading::kSoon: return all_panels<F, Reading::kSoon>(call);
      case Reading::kOnce: return all_panels<F, Reading::kOnce>(call);
    }
  });
}

}  // namespace octavo
