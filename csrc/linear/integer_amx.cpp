// Integer formats with AMX: weights and activations as two byte planes each, four tile products, exact in int32.
//
// With w = 256*wh + wl and a = 256*ah + al (high bytes signed, low bytes unsigned) the sum over k is
// 65536*HH + 256*M + LL, HH = sum(wh*ah), M = sum(wh*al + wl*ah), LL = sum(wl*al). A pair of panels is expanded once, for
// all rows. int32 holds M and LL for kBlockK inputs (2 * 128 * 255 * kBlockK < 2^31); longer rows add up in double, exactly.
#include "linear/simd512.h"

#include <cstring>

#include "linear/expand_avx512.h"
#include "linear/kernels.h"
#include "linear/tile_config.h"

namespace octavo {
namespace {

constexpr int64_t kBlockK = 4096;       // inputs expanded at a time: 256 KiB for two panels, a part of L2
constexpr int64_t kStepBytes = 4096;    // expanded bytes of 64 inputs of two panels
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kSumsBytes = 6 * kTileBytes;

struct Scratch {
  uint8_t* expanded;
  int32_t* sums;    // HH, M, LL of two panels
  double* carried;  // [rows][32] sums of earlier blocks of k; only for k > kBlockK
};

int64_t expanded_bytes(int64_t kp) { return (kp < kBlockK ? kp : kBlockK) / 64 * kStepBytes; }

// HH, M, LL of 16 rows and two panels over `steps` times 64 inputs.
inline void multiply_pair(const uint8_t* a, const uint8_t* b, int64_t steps, int32_t* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t step = 0; step < steps; ++step, a += 2 * kTileBytes, b += kStepBytes) {
    _tile_loadd(6, a, 64);
    _tile_loadd(7, b, 64);
    _tile_dpbssd(0, 6, 7);
    _tile_loadd(7, b + kTileBytes, 64);
    _tile_dpbsud(1, 6, 7);
    _tile_loadd(7, b + 2 * kTileBytes, 64);
    _tile_dpbssd(3, 6, 7);
    _tile_loadd(7, b + 3 * kTileBytes, 64);
    _tile_dpbsud(4, 6, 7);
    _tile_loadd(6, a + kTileBytes, 64);
    _tile_dpbuud(5, 6, 7);
    _tile_loadd(7, b + 2 * kTileBytes, 64);
    _tile_dpbusd(4, 6, 7);
    _tile_loadd(7, b + kTileBytes, 64);
    _tile_dpbuud(2, 6, 7);
    _tile_loadd(7, b, 64);
    _tile_dpbusd(1, 6, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
  _tile_stored(4, sums + 1024, 64);
  _tile_stored(5, sums + 1280, 64);
}

// The exact sums of 8 columns.
inline __m512d combine(const int32_t* sums) {
  const auto widen = [](const int32_t* from) {
    return _mm512_cvtepi32_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  };
  const __m512d high = _mm512_mul_pd(widen(sums), _mm512_set1_pd(65536.0));
  return _mm512_add_pd(_mm512_fmadd_pd(widen(sums + 256), _mm512_set1_pd(256.0), widen(sums + 512)), high);
}

// One panel's columns and how its results are written.
struct Columns {
  __m512d d_low, d_high;
  __m512 bias;
  __mmask16 mask;
  int64_t first;

  template <class F>
  static Columns of(const PackedWeight& weight, int64_t panel) {
    const __m512 d = _mm512_loadu_ps(weight.panel(panel) + F::row_scale_offset(padded_k(weight.k())));
    const int64_t first = panel * kPanel, left = weight.n() - first;
    return {_mm512_cvtps_pd(_mm512_castps512_ps256(d)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(d, 1)),
            weight.bias() ? _mm512_loadu_ps(weight.bias() + first) : _mm512_setzero_ps(),
            left >= kPanel ? __mmask16(0xffff) : __mmask16((1u << left) - 1), first};
  }
};

inline void write_row(const LinearCall& call, const Columns& columns, __m512d low, __m512d high, int64_t row) {
  const __m512d s = _mm512_set1_pd(static_cast<double>(reinterpret_cast<const float*>(call.prepared)[row]));
  const __m256 first = _mm512_cvtpd_ps(_mm512_mul_pd(low, _mm512_mul_pd(s, columns.d_low)));
  const __m256 second = _mm512_cvtpd_ps(_mm512_mul_pd(high, _mm512_mul_pd(s, columns.d_high)));
  __m512 values = _mm512_insertf32x8(_mm512_castps256_ps512(first), second, 1);
  if (call.weight->bias()) values = _mm512_add_ps(values, columns.bias);
  float* const out = call.out + row * call.ldo + columns.first;
  if (call.accumulate) values = _mm512_add_ps(_mm512_maskz_loadu_ps(columns.mask, out), values);
  _mm512_mask_storeu_ps(out, columns.mask, values);
}

// What becomes of the sums of a block of k: kept for the next block, or scaled and written.
struct Block {
  bool first, last;
};

inline void finish_rows(const LinearCall& call, const Columns& columns, int half, Block block, const Scratch& scratch,
                        int64_t row) {
  const int64_t count = call.rows - row < kTileRows ? call.rows - row : kTileRows;
  for (int64_t r = 0; r < count; ++r) {
    const int32_t* const sums = scratch.sums + 768 * half + 16 * r;
    double* const carried = scratch.carried + (row + r) * 2 * kPanel + kPanel * half;
    __m512d low = combine(sums), high = combine(sums + 8);
    if (!block.first) {
      low = _mm512_add_pd(low, _mm512_loadu_pd(carried));
      high = _mm512_add_pd(high, _mm512_loadu_pd(carried + 8));
    }
    if (block.last) {
      write_row(call, columns, low, high, row + r);
    } else {
      _mm512_storeu_pd(carried, low);
      _mm512_storeu_pd(carried + 8, high);
    }
  }
}

template <class F>
void panel_pair(const LinearCall& call, int64_t panel, int count, const Scratch& scratch) {
  const int64_t kp = padded_k(call.weight->k()), tile_row_bytes = integer_tile_bytes(kp);
  const Columns columns[2] = {Columns::of<F>(*call.weight, panel), Columns::of<F>(*call.weight, panel + count - 1)};
  for (int64_t k = 0; k < kp; k += kBlockK) {
    const int64_t steps = (kp - k < kBlockK ? kp - k : kBlockK) / 64;
    for (int which = 0; which < count; ++which)
      for (int64_t step = 0; step < steps; ++step)
        expand64<F>(call.weight->panel(panel + which), kp, k + 64 * step,
                    scratch.expanded + step * kStepBytes + which * 2 * kTileBytes);
    const Block block{k == 0, k + kBlockK >= kp};
    const uint8_t* a = call.prepared + row_scales_bytes(call.rows) + k / 64 * 2 * kTileBytes;
    for (int64_t row = 0; row < call.rows; row += kTileRows, a += tile_row_bytes) {
      multiply_pair(a, scratch.expanded, steps, scratch.sums);
      for (int which = 0; which < count; ++which) finish_rows(call, columns[which], which, block, scratch, row);
    }
  }
}

template <class F>
void all_panels(const LinearCall& call) {
  const TileConfig tiles;
  const int64_t kp = padded_k(call.weight->k());
  const Scratch scratch{call.scratch + kSumsBytes, reinterpret_cast<int32_t*>(call.scratch),
                        reinterpret_cast<double*>(call.scratch + kSumsBytes + expanded_bytes(kp))};
  for (int64_t panel = call.panel_begin; panel < call.panel_end; panel += 2)
    panel_pair<F>(call, panel, call.panel_end - panel < 2 ? 1 : 2, scratch);
}

}  // namespace

int64_t integer_scratch_bytes_amx(const PackedWeight& weight, int64_t rows) {
  const int64_t kp = padded_k(weight.k()), carried = kp > kBlockK ? rows * 2 * kPanel * 8 : 0;
  return kSumsBytes + expanded_bytes(kp) + carried;
}

void integer_linear_amx(const LinearCall& call) {
  visit_int_format(call.weight->format(), [&](auto f) { all_panels<decltype(f)>(call); });
}

}  // namespace octavo
