// The work of a phase, dealt out to the threads of a team before it begins: each takes its own share piece by piece from the
// front, and who is done takes over from the back what is left of the largest share. So a thread whose core is slow, or busy
// with something else, holds up the others by a piece at most, and else everyone works on the same data as in the phase before.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "common/thread_team.h"

namespace octavo {

class WorkShares {
 public:
  explicit WorkShares(int num_threads) : num_threads_(num_threads), left_(new Left[static_cast<size_t>(num_threads)]) {}

  // Gives `thread` the units [begin, end), below 2^32; each thread for itself, a barrier before anyone takes.
  void deal(int thread, Range units) { left_[thread].units.store(pack(units.begin, units.end), std::memory_order_relaxed); }

  // At most `most` units, which nobody else gets; an empty range where none are left. From others a thread takes them where
  // those have at least `worth` left.
  Range take(int thread, int64_t most, int64_t worth = 1) {
    const Range own = take_front(left_[thread].units, most);
    return own.begin < own.end || num_threads_ == 1 ? own : take_over(most, worth);
  }

 private:
  struct alignas(64) Left {
    std::atomic<uint64_t> units{0};
  };

  static uint64_t pack(int64_t begin, int64_t end) { return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end); }
  static Range unpack(uint64_t units) { return {static_cast<int64_t>(units >> 32), static_cast<int64_t>(units & 0xffffffff)}; }

  static int64_t size(uint64_t units) { return unpack(units).end - unpack(units).begin; }

  static Range take_front(std::atomic<uint64_t>& units, int64_t most) {
    uint64_t seen = units.load(std::memory_order_relaxed);
    for (;;) {
      const Range left = unpack(seen);
      if (left.begin >= left.end) return {0, 0};
      const int64_t end = std::min(left.begin + most, left.end);
      if (units.compare_exchange_weak(seen, pack(end, left.end), std::memory_order_relaxed)) return {left.begin, end};
    }
  }

  Range take_over(int64_t most, int64_t worth) {
    for (;;) {
      Left* largest = nullptr;
      uint64_t seen = 0;
      for (Left* each = left_.get(); each < left_.get() + num_threads_; ++each) {
        const uint64_t units = each->units.load(std::memory_order_relaxed);
        if (size(units) > size(seen)) largest = each, seen = units;
      }
      if (size(seen) < worth) return {0, 0};
      const Range left = unpack(seen);
      const int64_t begin = std::max(left.end - most, left.begin);
      if (largest->units.compare_exchange_strong(seen, pack(left.begin, begin), std::memory_order_relaxed))
        return {begin, left.end};
    }
  }

  int num_threads_;
  std::unique_ptr<Left[]> left_;
};

}  // namespace octavo
