// The passes over a vocabulary that sampling is made of, one table of functions per instruction set.
//
// Every result is the same bits on every instruction set: the float part is elementwise without fused multiply-add, and
// every sum is a sum of integers. A logit x is read as max(x, -inf) (so NaN becomes -inf), then min(x, FLT_MAX).
// A weight w in [0, 1] counts as the integer mass round(w * 2^40); a vocabulary of 2^20 tokens cannot overflow.
#pragma once

#include <cstdint>

#include "common/isa.h"

namespace octavo {

constexpr int kPivots = 8;
constexpr int kPadding = 16;                     // writable floats (ids) that compressing passes need behind their output
constexpr float kMassScale = 1099511627776.0f;   // 2^40
constexpr float kSmallestWeight = 1.0f / kMassScale;  // weights below are zero: e^-27.7 of the most likely token's

// The largest logit and the lowest index that has it; index -1 where every logit is -inf.
struct Peak {
  float value;
  int64_t index;
};

struct VectorOps {
  Peak (*peak)(const float* logits, int64_t n);
  // w = exp((logits - peak) * inverse_temperature), 0 where that is below floor; returns the mass.
  // peak must be finite, floor at least kSmallestWeight.
  int64_t (*weigh)(const float* logits, int64_t n, float peak, float inverse_temperature, float floor, float* weights);
  // The mass that weigh would return at temperature 1, without writing weights.
  int64_t (*exp_mass)(const float* logits, int64_t n, float peak);
  // amounts[j] = mass, or number, of the weights above pivots[j].
  void (*mass_above)(const float* weights, int64_t n, const float* pivots, int64_t* amounts);
  void (*count_above)(const float* weights, int64_t n, const float* pivots, int64_t* amounts);
  int64_t (*mass)(const float* weights, int64_t n);
  // Copies the weights in (low, high] to out, in order; returns how many. out may be weights.
  int64_t (*extract)(const float* weights, int64_t n, float low, float high, float* out);
  // Copies the weights above `value`, and the first `ties` that equal it, with their ids (null: the index is the id).
  // Returns how many. The outputs may be the inputs.
  int64_t (*compact)(const float* weights, const int32_t* ids, int64_t n, float value, int64_t ties, float* weights_out,
                     int32_t* ids_out);
  // How many logits are above value; the first index >= begin of one that is, or n.
  int64_t (*count_greater)(const float* logits, int64_t n, float value);
  int64_t (*find_greater)(const float* logits, int64_t begin, int64_t n, float value);
};

extern const VectorOps kVectorOpsAvx2;
extern const VectorOps kVectorOpsAvx512;

inline const VectorOps& vector_ops(Isa isa) { return isa == Isa::kAvx2 ? kVectorOpsAvx2 : kVectorOpsAvx512; }

// One logit as the passes read it. Static: a copy compiled for one instruction set must not serve the others.
static inline float clean_logit(float x) {
  constexpr float kMax = 3.40282346638528859811704183484516925e+38f;
  return x > kMax ? kMax : x == x ? x : -__builtin_inff();
}

}  // namespace octavo
