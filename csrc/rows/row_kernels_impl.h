// The row kernels, as plain loops that the compiler vectorises where those do: included once per instruction set, never
// elsewhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "rows/gated_activation.h"
#include "rows/row_kernels.h"

namespace octavo {
namespace {

constexpr int64_t kLanes = 16;

// Sum of squares in kLanes lanes, folded pairwise.
inline float sum_of_squares(const float* x, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j] * x[i + j];
  for (int64_t j = 0; i + j < n; ++j) lanes[j] += x[i + j] * x[i + j];
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

void rms_norm(const float* x, const float* weight, float eps, int64_t heads, int64_t width, float* out) {
  const int64_t n = width / heads;
  for (int64_t head = 0; head < heads; ++head, x += n, out += n) {
    const float factor = 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
#pragma GCC ivdep  // out may be x, never a shifted part of it
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
  }
}

void rope(const float* x, int64_t heads, int64_t head_dim, int64_t half, const float* cosines, const float* sines,
          float* out) {
  for (int64_t head = 0; head < heads; ++head, x += head_dim, out += head_dim) {
#pragma GCC ivdep  // out may be x, never a shifted part of it
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[i], b = x[i + half];
      out[i] = a * cosines[i] - b * sines[i];
      out[i + half] = b * cosines[i] + a * sines[i];
    }
    if (out != x && head_dim > 2 * half) std::memcpy(out + 2 * half, x + 2 * half, (head_dim - 2 * half) * sizeof(float));
  }
}

void add(const float* a, const float* b, int64_t n, float* out) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

template <class V>
constexpr RowKernels make_row_kernels() {
  return {rms_norm, rope, gated<V, Silu>, gated<V, GeluTanh>, add};
}

}  // namespace
}  // namespace octavo
