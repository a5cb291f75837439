// Prefetching of weights. A thread reads the panels of its share one after the other, and then those of another linear: what is
// asked for ahead of time goes on there, so that no linear begins cold and nothing is fetched in vain.
//
// Into the second cache from far ahead, for what waits for memory in the few miss buffers of the first one holds up the loads
// behind it, and from there into the first one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/prefetch.h"
#include "linear/kernels.h"

namespace octavo {

class ReadAhead {
 public:
  // For the weights of a call.
  explicit ReadAhead(const LinearCall& call) : end_(call.weight->panel(call.panel_end)), next_(call.next) {}

  // What is read `distance` bytes after `from`, of this linear or the next; `from` itself where nothing is known to come.
  const uint8_t* after(const uint8_t* from, ptrdiff_t distance) const {
    const uint8_t* const then = from + distance;
    if (then < end_) return then;
    return next_ == nullptr ? from : next_ + (then - end_);
  }

  // Called once for each group that is read, asks for as many bytes, into the second cache.
  template <class F>
  inline void far(const uint8_t* panel, int64_t group) const {
    const uint8_t* const from = after(panel + group * F::kGroupBytes, kFar);
    for (int line = 0; line < F::kGroupBytes; line += 64) prefetch_far(from + line);
  }

  // The same for what comes soon, into the first cache: for kernels that are no slower than memory.
  template <class F>
  inline void near(const uint8_t* panel, int64_t group) const {
    const uint8_t* const from = panel + group * F::kGroupBytes + kNear;
    for (int line = 0; line < F::kGroupBytes; line += 64) prefetch_near(from + line);
  }

 private:
  static constexpr ptrdiff_t kFar = 64 << 10, kNear = 4 << 10;
  const uint8_t *end_, *next_;
};

}  // namespace octavo
