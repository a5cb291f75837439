// The row kernels as plain loops that the compiler vectorises: included once per instruction set, never elsewhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

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

constexpr int64_t kPart = 64;  // values of an activation at once

// exp(x) in place for up to kPart values, to about 2 ulp: x = n ln2 + r, a polynomial in r (Cephes' coefficients), n put
// into the exponent. The limits have a loop of their own: with the rest in one, compilers make a case of each limit, with
// its own division.
inline void exp_part(float* __restrict x, int64_t count) {
  constexpr float kLog2e = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] < -87.0f ? -87.0f : x[i];
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] > 88.0f ? 88.0f : x[i];
  for (int64_t i = 0; i < count; ++i) {
    const float n = (x[i] * kLog2e + kRound) - kRound;
    const float r = (x[i] - n * kLn2High) - n * kLn2Low;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(n) + 127) * (1 << 23);
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));
    x[i] = p * scale;
  }
}

// out = gate / (1 + exp(exponent(gate))) * up
template <class Exponent>
void gated(const float* __restrict gate, const float* __restrict up, int64_t n, float* __restrict out, Exponent exponent) {
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t count = n - first < kPart ? n - first : kPart;
    float power[kPart];
    for (int64_t i = 0; i < count; ++i) power[i] = exponent(gate[first + i]);
    exp_part(power, count);
    for (int64_t i = 0; i < count; ++i) out[first + i] = gate[first + i] / (1.0f + power[i]) * up[first + i];
  }
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  gated(gate, up, n, out, [](float x) { return -x; });
}

// gelu_tanh(x) = x / 2 (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
void gelu_tanh_mul(const float* gate, const float* up, int64_t n, float* out) {
  constexpr float kTwiceSqrt2OverPi = 1.59576912160573071f;
  gated(gate, up, n, out, [](float x) { return -kTwiceSqrt2OverPi * (x + 0.044715f * x * x * x); });
}

void add(const float* a, const float* b, int64_t n, float* out) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

constexpr RowKernels kRowKernels{rms_norm, rope, silu_mul, gelu_tanh_mul, add};

}  // namespace
}  // namespace octavo
