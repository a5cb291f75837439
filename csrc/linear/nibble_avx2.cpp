// 4-bit formats with AVX2 for few rows: the codes are multiplied as they are stored, a group's sum with its e and z.
//
// vpmaddubsw multiplies codes with the two 7-bit planes of the activations, and a group's sums stay in 16 bits, so one
// vpmaddwd multiplies them with e (and the sum of the inputs with z) and adds them up in 32. What a group adds there is at most
// 32 * 64 * |w_int|: 32 bits hold many groups of it. How often they move on changes nothing: all sums are exact.
#include <immintrin.h>

#include "linear/narrow_panels_avx2.h"
#include "linear/read_ahead.h"

namespace octavo {
namespace {

// The sums of 8 columns over both planes.
struct PlaneSums {
  __m256i high, low;
  void move_to(LongSums& sums) const {
    sums.add_product(high, _mm256_set1_epi32(128));
    sums.add_product(low, _mm256_set1_epi32(1));
  }
};

// What a group of 8 columns is multiplied with: affine, (e, z) a column; symmetric, e twice.
template <class F>
__m256i load_scales(const uint8_t* scales) {
  if constexpr (F::kAffine) return load(scales);
  return doubled_scales(scales);
}

// One plane's products of one group with 8 columns, in two 16-bit lanes a column. Symmetric codes are stored plus 8, so their
// sums begin with -8 times the sum of the inputs; in a lane that gives 32 terms of at most 8 * 64.
template <class F>
__m256i begin_plane(const uint8_t* sums, int plane) {
  return F::kAffine ? _mm256_setzero_si256() : broadcast4(sums + 8 + 4 * plane);
}
template <class F>
__m256i scaled(__m256i products, const uint8_t* sums, int plane, __m256i scales) {
  if constexpr (!F::kAffine) return _mm256_madd_epi16(products, scales);
  const __m256i both = _mm256_madd_epi16(products, _mm256_set1_epi16(1));  // fits the lower half
  return _mm256_madd_epi16(_mm256_blend_epi16(both, broadcast4(sums + 4 * plane), 0xaa), scales);
}

// Adds the groups [begin, end) of a panel to the sums of Rows rows and of its 8 * Halves columns from `half` on.
template <class F, int Rows, int Halves>
void add_groups(const uint8_t* panel, const NarrowRow& layout, const uint8_t* const* rows, int half, int64_t begin, int64_t end,
                const ReadAhead& ahead, LongSums (*sums)[2]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const uint8_t* const scales = panel + F::scale_offset(layout.kp);
  PlaneSums total[Rows][Halves];
  for (int r = 0; r < Rows; ++r)
    for (int h = 0; h < Halves; ++h) total[r][h] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int64_t g = begin; g < end; ++g) {
    if (half == 0) {
      ahead.far<F>(panel, g);
      ahead.near<F>(panel, g);
    }
    const uint8_t* plane_sums[Rows];
    PlaneSums products[Rows][Halves];
    for (int r = 0; r < Rows; ++r) {
      plane_sums[r] = rows[r] + layout.plane_sums_offset() + 16 * g;
      for (int h = 0; h < Halves; ++h)
        products[r][h] = {begin_plane<F>(plane_sums[r], 0), begin_plane<F>(plane_sums[r], 1)};
    }
    const uint8_t* const codes = panel + g * F::kCodeBytes + 32 * half;
#pragma GCC unroll 4
    for (int vector = 0; vector < 4; ++vector)
#pragma GCC unroll 2
      for (int shift = 0; shift < 8; shift += 4) {
        __m256i quads[Halves];
        for (int h = 0; h < Halves; ++h) {
          const __m256i both = load(codes + 64 * vector + 32 * h);
          quads[h] = _mm256_and_si256(shift ? _mm256_srli_epi16(both, 4) : both, nibble);
        }
        for (int r = 0; r < Rows; ++r) {
          const uint8_t* const planes = layout.planes(rows[r]) + 64 * g + 8 * vector + 8 * shift;
          const __m256i high = broadcast4(planes), low = broadcast4(planes + 4);
          for (int h = 0; h < Halves; ++h) {
            PlaneSums& sum = products[r][h];
            sum.high = _mm256_add_epi16(sum.high, _mm256_maddubs_epi16(quads[h], high));
            sum.low = _mm256_add_epi16(sum.low, _mm256_maddubs_epi16(quads[h], low));
            keep_order(sum.high, sum.low);
          }
        }
      }
    for (int h = 0; h < Halves; ++h) {
      const __m256i ez = load_scales<F>(scales + g * F::kScaleBytes + F::kScaleBytes / 2 * (half + h));
      for (int r = 0; r < Rows; ++r) {
        PlaneSums& sum = total[r][h];
        sum.high = _mm256_add_epi32(sum.high, scaled<F>(products[r][h].high, plane_sums[r], 0, ez));
        sum.low = _mm256_add_epi32(sum.low, scaled<F>(products[r][h].low, plane_sums[r], 1, ez));
      }
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int h = 0; h < Halves; ++h) total[r][h].move_to(sums[r][half + h]);
}

template <class F, int Rows>
void panel_rows(const LinearCall& call, int64_t panel, int64_t row) {
  // One row: the halves share its inputs. Two: 16 registers hold the sums of one half, and both read a block from the first cache.
  constexpr int64_t kBlock = Rows == 1 ? F::kFlush / F::kGroup : 16;
  const NarrowRow layout(call.weight->k());
  const int64_t groups = layout.kp / F::kGroup;
  const uint8_t* const bytes = call.weight->panel(panel);
  const uint8_t* rows[Rows];
  for (int r = 0; r < Rows; ++r) rows[r] = layout.at(call, row + r);
  const ReadAhead ahead(call);
  LongSums sums[Rows][2];
  for (int64_t begin = 0; begin < groups; begin += kBlock) {
    const int64_t end = begin + kBlock < groups ? begin + kBlock : groups;
    if constexpr (Rows == 1) {
      add_groups<F, 1, 2>(bytes, layout, rows, 0, begin, end, ahead, sums);
    } else {
      add_groups<F, Rows, 1>(bytes, layout, rows, 0, begin, end, ahead, sums);
      add_groups<F, Rows, 1>(bytes, layout, rows, 1, begin, end, ahead, sums);
    }
  }
  write_panel<F>(call, panel, row, sums);
}

}  // namespace

void nibble_linear_avx2(const LinearCall& call) {
  const auto multiply = [&](auto f) { by_panels(call, panel_rows<decltype(f), 2>, panel_rows<decltype(f), 1>); };
  call.weight->format() == WeightFormat::kW4 ? multiply(W4{}) : multiply(W4Symmetric{});
}

}  // namespace octavo
