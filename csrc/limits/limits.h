// The machine's own limits, to set beside what the kernels reach: how fast a thread reads memory, and how many products it
// computes on values that never leave its registers.
#pragma once

#include <cstdint>

#include "common/isa.h"

namespace octavo {

enum class ProductKind : int { kInt8 = 0, kBf16 = 1, kF32 = 2 };
constexpr int kProductKinds = 3;

struct ProductLoop {
  // Null where the instruction set has no products of this kind of its own. The result depends on every round.
  float (*run)(int64_t rounds);
  int64_t operations;  // of one round; a product and its addition are two
};

struct LimitLoops {
  // Reads every cache line of `bytes` bytes, a multiple of kReadGrain, from an address aligned to 64. The result depends on
  // all of them.
  uint64_t (*read)(const void* memory, int64_t bytes);
  ProductLoop products[kProductKinds];
};
constexpr int64_t kReadGrain = 512;

const LimitLoops& limit_loops(Isa isa);

}  // namespace octavo
