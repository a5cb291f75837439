// Where top-k and top-p cut a distribution, and which token a random number picks, without sorting the vocabulary.
#pragma once

#include <cstdint>

#include "sampling/vector_ops.h"

namespace octavo {

// Tokens ordered by weight (descending), then by id: those above `value` are kept, and the first `ties` equal to it.
struct Cut {
  float value;
  int64_t ties;
};

// round(weight * 2^40)
inline int64_t weight_mass(float weight) { return static_cast<int64_t>(__builtin_nearbyint(double{weight} * 0x1p40)); }

// The shortest prefix of that order with at least `needed` tokens (or mass). needed must be positive. Where the positive
// weights do not suffice, all of them are kept: value 0, no ties. scratch: n + kPadding floats.
Cut find_count_cut(const VectorOps& ops, const float* weights, int64_t n, int64_t needed, float* scratch);
Cut find_mass_cut(const VectorOps& ops, const float* weights, int64_t n, int64_t needed, float* scratch);

// The first index whose running mass exceeds target, 0 <= target < total mass.
int64_t pick(const VectorOps& ops, const float* weights, int64_t n, int64_t target);

}  // namespace octavo
