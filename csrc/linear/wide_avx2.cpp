// Integer formats with AVX2 for many rows: a panel's weights are expanded to the 16-bit integers e*q + z once, and vpmaddwd
// multiplies them with the 14-bit activations of every row.
//
// 32-bit sums hold as many products as the rows' own magnitudes allow (WideNorms); then they move into two wider
// sums. However often that happens, the result is the same exact integer.
#include <immintrin.h>

#include <cstring>

#include "linear/read_ahead.h"
#include "linear/vectors_avx2.h"

namespace octavo {
namespace {

constexpr int kTile = 4;               // rows of one pass
constexpr int64_t kChunkRows = 64;     // rows that share an expanded block
constexpr int64_t kBlockInputs = 512;  // expanded at a time, so that they stay in the first cache ...
constexpr int64_t kWholeInputs = 768;  // ... but for panels of at most this many, which are expanded whole

// Per column of 8: e twice and z twice, as 16-bit lanes.
struct Scales {
  __m256i e, z;
};
template <class F>
Scales load_scales(const uint8_t* scales, int half) {
  if constexpr (F::kAffine) {
    const __m256i ez = load(scales + 32 * half);
    const __m256i low = _mm256_and_si256(ez, _mm256_set1_epi32(0xffff)), high = _mm256_srli_epi32(ez, 16);
    return {_mm256_or_si256(low, _mm256_slli_epi32(low, 16)), _mm256_or_si256(high, _mm256_slli_epi32(high, 16))};
  } else {
    // What was added to the codes. Modulo 2^16 this is exact, for e * (q - kOffset) fits.
    const __m256i e = doubled_scales(scales + 16 * half);
    return {e, _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(e, F::kBits - 1))};
  }
}

// codes: of 8 columns two 16-bit lanes each, inputs 0 and 2 of a quad, or 1 and 3. Writes their integers.
void write_pair(__m256i codes, const Scales& scales, int16_t* to) {
  store(to, _mm256_add_epi16(_mm256_mullo_epi16(codes, scales.e), scales.z));
}

// codes: 8 columns x 4 bytes (one quad of inputs).
void expand_quad(__m256i codes, const Scales& scales, int16_t* to) {
  write_pair(_mm256_and_si256(codes, _mm256_set1_epi16(0xff)), scales, to);
  write_pair(_mm256_srli_epi16(codes, 8), scales, to + 2 * kPanel);
}

// codes: 8 columns x 4 bytes, the low nibbles one quad, the high ones another. to: the first, other: the second.
void expand_nibbles(__m256i codes, const Scales& scales, int16_t* to, int16_t* other) {
  const __m256i nibble = _mm256_set1_epi16(15);
  write_pair(_mm256_and_si256(codes, nibble), scales, to);
  write_pair(_mm256_and_si256(_mm256_srli_epi16(codes, 8), nibble), scales, to + 2 * kPanel);
  write_pair(_mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble), scales, other);
  write_pair(_mm256_srli_epi16(codes, 12), scales, other + 2 * kPanel);
}

// Inputs [begin, end) of a panel as [pair of inputs][16 columns][2] integers; the pairs are those of WideRow.
template <class F>
void expand(const uint8_t* panel, int64_t kp, int64_t begin, int64_t end, const ReadAhead& ahead, int16_t* to) {
  for (int64_t g = begin / F::kGroup; g < end / F::kGroup; ++g, to += F::kGroup * kPanel) {
    const uint8_t* const codes = panel + g * F::kCodeBytes;
    ahead.far<F>(panel, g);
    for (int half = 0; half < 2; ++half) {
      const Scales scales = load_scales<F>(panel + F::scale_offset(kp) + g * F::kScaleBytes, half);
      int16_t* const out = to + 16 * half;
      if constexpr (F::kBits == 4) {
#pragma GCC unroll 4
        for (int vector = 0; vector < 4; ++vector) {
          int16_t* const first = out + 4 * kPanel * vector;
          expand_nibbles(load(codes + 64 * vector + 32 * half), scales, first, first + 16 * kPanel);
        }
      } else {
#pragma GCC unroll 8
        for (int quad = 0; quad < F::kGroup / 4; ++quad)
          expand_quad(quad_codes<F>(codes + 32 * half, quad), scales, out + 4 * kPanel * quad);
      }
    }
  }
}

// The sums of one row and panel: sum = 65536 * high + low.
struct WideSums {
  int32_t high[kPanel], low[kPanel];
};

void carry(WideSums& sums, int half, __m256i sum) {
  int32_t *const high = sums.high + 8 * half, *const low = sums.low + 8 * half;
  store(high, _mm256_add_epi32(load(high), _mm256_srai_epi32(sum, 16)));
  store(low, _mm256_add_epi32(load(low), _mm256_and_si256(sum, _mm256_set1_epi32(0xffff))));
}

__m256i pair_at(const int16_t* a) {
  int32_t pair;
  std::memcpy(&pair, a, 4);
  return _mm256_set1_epi32(pair);
}

// Adds the products of `inputs` expanded inputs with Rows rows to their sums, at most `run` products in a 32-bit sum.
template <int Rows>
void multiply(const int16_t* weights, int64_t inputs, int64_t run, const int16_t* const* rows, WideSums* sums) {
  for (int64_t first = 0; first < inputs; first += run) {
    __m256i sum[Rows][2];
    for (int r = 0; r < Rows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    const int64_t last = first + run < inputs ? first + run : inputs;
    for (int64_t k = first; k < last; k += 8)
#pragma GCC unroll 4
      for (int p = 0; p < 8; p += 2) {
        const __m256i left = load(weights + (k + p) * kPanel), right = load(weights + (k + p) * kPanel + 16);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          const __m256i pair = pair_at(rows[r] + k + p);
          sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(left, pair));
          sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(right, pair));
          keep_order(sum[r][0], sum[r][1]);
        }
      }
    for (int r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half) carry(sums[r], half, sum[r][half]);
  }
}

template <class F>
void multiply_rows(const LinearCall& call, const WideRow& layout, const int16_t* weights, int64_t begin, int64_t end,
                   int64_t row, int64_t count, WideSums* sums) {
  for (int64_t r = 0; r < count; r += kTile) {
    const int64_t rows = count - r < kTile ? count - r : kTile;
    const int16_t* inputs[kTile];
    for (int64_t i = 0; i < rows; ++i) inputs[i] = layout.values(layout.at(call, row + r + i)) + begin;
    const int64_t run = safe_run<F>(rows, [&](int64_t i) { return layout.norms(layout.at(call, row + r + i)); });
    switch (rows) {
      case 4: multiply<4>(weights, end - begin, run, inputs, sums + r); break;
      case 3: multiply<3>(weights, end - begin, run, inputs, sums + r); break;
      case 2: multiply<2>(weights, end - begin, run, inputs, sums + r); break;
      default: multiply<1>(weights, end - begin, run, inputs, sums + r);
    }
  }
}

Sums8 join(const WideSums& sums, int half) {
  const __m256d weight = _mm256_set1_pd(65536.0);
  const auto four = [&](int column) {
    const __m256d high = _mm256_cvtepi32_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sums.high + column)));
    const __m256d low = _mm256_cvtepi32_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sums.low + column)));
    return _mm256_add_pd(_mm256_mul_pd(high, weight), low);
  };
  return {four(8 * half), four(8 * half + 4)};
}

template <class F>
void panel_rows(const LinearCall& call, int64_t panel, int64_t row, int64_t count) {
  const WideRow layout(call.weight->k());
  const int64_t kp = layout.kp, step = kp <= kWholeInputs ? kp : kBlockInputs;
  const uint8_t* const bytes = call.weight->panel(panel);
  int16_t* const weights = reinterpret_cast<int16_t*>(call.scratch);
  WideSums* const sums = reinterpret_cast<WideSums*>(call.scratch + 2 * kPanel * kWholeInputs);
  std::memset(sums, 0, sizeof(WideSums) * static_cast<size_t>(count));
  for (int64_t begin = 0; begin < kp; begin += step) {
    const int64_t end = begin + step < kp ? begin + step : kp;
    expand<F>(bytes, kp, begin, end, ReadAhead(call), weights);
    multiply_rows<F>(call, layout, weights, begin, end, row, count, sums);
  }
  const float* const row_scales = reinterpret_cast<const float*>(bytes + F::row_scale_offset(kp));
  for (int64_t r = 0; r < count; ++r)
    for (int half = 0; half < 2; ++half)
      write_sums8(call, join(sums[r], half), row_scales + 8 * half, row + r, panel * kPanel + 8 * half);
}

template <class F>
void all_panels(const LinearCall& call) {
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel)
    for (int64_t row = 0; row < call.rows; row += kChunkRows)
      panel_rows<F>(call, panel, row, call.rows - row < kChunkRows ? call.rows - row : kChunkRows);
}

}  // namespace

int64_t wide_scratch_bytes_avx2() { return 2 * kPanel * kWholeInputs + kChunkRows * static_cast<int64_t>(sizeof(WideSums)); }

void wide_linear_avx2(const LinearCall& call) {
  visit_int_format(call.weight->format(), [&](auto f) { all_panels<decltype(f)>(call); });
}

}  // namespace octavo
