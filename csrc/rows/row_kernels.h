// Operations that touch one row at a time: norms, rotary embedding, gated activation, sums.
//
// All work in float32 with sums in sixteen fixed lanes, so a row's bits depend on the instruction set at most.
#pragma once

#include <cstdint>

#include "common/isa.h"

namespace octavo {

struct RowKernels {
  // Each of `heads` equal parts of x [width]: out = x / sqrt(mean(x^2) + eps) * weight [width / heads]. out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t heads, int64_t width, float* out);
  // out = x's `heads` vectors of head_dim floats, rotated: column i < half turns with column i + half by the angle whose
  // cosine and sine are cosines[i], sines[i]. out may be x.
  void (*rope)(const float* x, int64_t heads, int64_t head_dim, int64_t half, const float* cosines, const float* sines,
               float* out);
  // out = silu(gate) * up, out = gelu_tanh(gate) * up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*gelu_tanh_mul)(const float* gate, const float* up, int64_t n, float* out);
  // out = a + b. out may be a.
  void (*add)(const float* a, const float* b, int64_t n, float* out);
};

const RowKernels& row_kernels(Isa isa);

}  // namespace octavo
