// What the kernels that multiply 16-bit weights with 14-bit activations share: how many products a 32-bit sum holds.
//
// In the worst case few; a row's own magnitudes say how many really. For runs of 16, 32, ... 256 inputs a prepared row keeps
// the largest sum of |a| over one.
#pragma once

#include <cstdint>

#include "linear/formats.h"

namespace octavo {

struct WideNorms {
  static constexpr int kCount = 5;
  static constexpr int64_t kBytes = 64;  // in a prepared row
  static constexpr int64_t length(int i) { return int64_t{16} << i; }

  int32_t largest[kCount] = {};

  // Adds the sum of |a| over inputs [i, i + 16); in order.
  void add(int64_t i, int32_t sum) {
    for (int n = 0; n < kCount; ++n) {
      sums_[n] = i % length(n) ? sums_[n] + sum : sum;
      largest[n] = sums_[n] > largest[n] ? sums_[n] : largest[n];
    }
  }

 private:
  int32_t sums_[kCount] = {};
};

// The longest run of products that, begun at a number of 16 bits, stays below 2^31 for `rows` rows. norms_of(row) points to
// WideNorms::largest of a row.
template <class F, class NormsOf>
int64_t safe_run(int64_t rows, NormsOf&& norms_of) {
  constexpr int32_t kMost = (0x7fffffff - 0xffff) / F::kLimit;
  int64_t run = F::kBits == 4 ? 32 : 8;  // 32 * 8064 * 8191 and 8 * 8064 * 32767 are short enough
  for (int i = 0; i < WideNorms::kCount; ++i) {
    if (WideNorms::length(i) <= run) continue;
    for (int64_t row = 0; row < rows; ++row)
      if (norms_of(row)[i] > kMost) return run;
    run = WideNorms::length(i);
  }
  return run;
}

}  // namespace octavo
