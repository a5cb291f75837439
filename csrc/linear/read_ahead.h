// Prefetching of weights. A thread reads the panels of its share one after the other, and then those of another linear: what is
// asked for ahead of time goes on there, so that no linear begins cold and nothing is fetched in vain.
//
// Into the second cache from far ahead, for what waits for memory in the few miss buffers of the first one holds up the loads
// behind it, and from there into the first one. Kernels for few rows ask some machines in other ways (Reading).
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

  // How to ask in a call of a kernel for few rows: soon() is for panels that are long enough for the machine's prefetchers.
  template <class F>
  static Reading reading(const LinearCall& call) {
    const bool longer = F::scale_offset(padded_k(call.weight->k())) >= kLongCodes;
    return call.reading == Reading::kSoon && !longer ? Reading::kTwice : call.reading;
  }

  // Called once for each of a panel's `groups` by a kernel for few rows.
  template <class F, Reading R>
  inline void ask(const uint8_t* panel, int64_t groups, int64_t group) const {
    if constexpr (R == Reading::kSoon) {
      soon<F>(panel, groups, group);
    } else if constexpr (R == Reading::kOnce) {
      once<F>(panel, group);
    } else {
      far<F>(panel, group);
      near<F>(panel, group);
    }
  }

  // Called once for each of a panel's `groups`, asks for the codes and scales of later ones into the first cache: here or in the
  // next panel. They are apart, so they are asked for apart.
  template <class F>
  inline void soon(const uint8_t* panel, int64_t groups, int64_t group) const {
    const uint8_t* following = panel + F::panel_bytes(groups * F::kGroup);
    if (following == end_) following = next_ == nullptr ? panel : next_;
    const auto at = [&](int64_t which, int64_t bytes) {
      return which < groups ? panel + which * bytes : following + (which - groups) * bytes;
    };
    const uint8_t* const codes = at(group + kSoonCodes / F::kCodeBytes, F::kCodeBytes);
    for (int line = 0; line < F::kCodeBytes; line += 64) prefetch_near(codes + line);
    if (group * F::kScaleBytes % 64 == 0)  // the first of a line
      prefetch_near(at(group + kSoonScales / F::kScaleBytes, F::kScaleBytes) + F::scale_offset(groups * F::kGroup));
  }

  // Called once for each group that is read, asks for as many bytes: 4- and 6-bit weights, whose codes take time to unpack, into
  // the second cache, 8-bit ones into the first.
  template <class F>
  inline void once(const uint8_t* panel, int64_t group) const {
    const uint8_t* const from = after(panel + group * F::kGroupBytes, F::kBits == 8 ? kOnceNear : kOnceFar);
    for (int line = 0; line < F::kGroupBytes; line += 64)
      F::kBits == 8 ? prefetch_near(from + line) : prefetch_far(from + line);
  }

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
  static constexpr ptrdiff_t kFar = 64 << 10, kNear = 4 << 10, kSoonCodes = 2 << 10, kSoonScales = 1 << 10;
  static constexpr ptrdiff_t kOnceFar = 32 << 10, kOnceNear = 16 << 10;
  static constexpr int64_t kLongCodes = 16 << 10;
  const uint8_t *end_, *next_;
};

}  // namespace octavo
