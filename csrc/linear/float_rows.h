// float32 and widened bfloat16 weights: one chain of fused multiply-adds per output, k ascending. Included by one file per
// instruction set, which defines the vector type V: kVectors (of a panel), Register, zero, fma, broadcast, load_f32,
// load_bf16 (both of the panel's 16 columns) and store.
#pragma once

#include <cstdint>

#include "linear/kernels.h"

namespace octavo {
namespace {

template <class V, bool kBf16, int Rows>
void float_panel_rows(const LinearCall& call, int64_t panel, int64_t row) {
  const int64_t k = call.weight->k(), kp = padded_k(k), column = panel * kPanel;
  const uint8_t* const weights = call.weight->panel(panel);
  const float* const x = reinterpret_cast<const float*>(call.prepared) + row * kp;
  typename V::Register sums[Rows][V::kVectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < V::kVectors; ++v) sums[r][v] = V::zero();
  for (int64_t i = 0; i < k; ++i) {
    typename V::Register w[V::kVectors];
    if constexpr (kBf16)
      V::load_bf16(weights + i / 2 * 4 * kPanel, i % 2, w);
    else
      V::load_f32(weights + i * 4 * kPanel, w);
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < V::kVectors; ++v) sums[r][v] = V::fma(V::broadcast(x + r * kp + i), w[v], sums[r][v]);
  }
  const float* const bias = call.weight->bias();
  const int64_t count = call.weight->n() - column < kPanel ? call.weight->n() - column : kPanel;
  for (int r = 0; r < Rows; ++r) {
    alignas(64) float values[kPanel];
    V::store(values, sums[r]);
    float* const out = call.out + (row + r) * call.ldo + column;
    for (int64_t c = 0; c < count; ++c) {
      const float value = bias ? values[c] + bias[column + c] : values[c];
      out[c] = call.accumulate ? out[c] + value : value;
    }
  }
}

template <class V, bool kBf16>
void float_panels(const LinearCall& call) {
  for (int64_t panel = call.panel_begin; panel < call.panel_end; ++panel) {
    int64_t row = 0;
    for (; row + V::kRows <= call.rows; row += V::kRows) float_panel_rows<V, kBf16, V::kRows>(call, panel, row);
    for (; row + 2 <= call.rows; row += 2) float_panel_rows<V, kBf16, 2>(call, panel, row);
    for (; row < call.rows; ++row) float_panel_rows<V, kBf16, 1>(call, panel, row);
  }
}

}  // namespace
}  // namespace octavo
