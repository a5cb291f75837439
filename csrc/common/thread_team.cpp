#include "common/thread_team.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

// Long enough to bridge the work between two steps, short enough that an idle process costs nothing.
constexpr auto kSpin = std::chrono::microseconds(500);
// A barrier that waits longer than this shares its core with another thread: let that one run.
constexpr int kSpinsBeforeYield = 2000;

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

template <class Condition>
void spin_until(Condition&& condition) {
  for (int spins = 0; !condition(); ++spins) {
    if (spins < kSpinsBeforeYield) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

ThreadTeam::ThreadTeam(int num_threads) : num_threads_(num_threads) {
  if (num_threads < 1 || num_threads > kMostThreads)
    throw std::invalid_argument("threads is " + std::to_string(num_threads) + ", must be between 1 and " +
                                std::to_string(kMostThreads));
  for (int thread = 1; thread < num_threads; ++thread) threads_.emplace_back([this, thread] { worker(thread); });
}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  futex_wake_all(epoch_);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run_region(Region region, void* context) {
  if (num_threads_ == 1) {
    region(context, 0);
    return;
  }
  region_ = region;
  context_ = context;
  running_.store(num_threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  if (sleepers_.load() > 0) futex_wake_all(epoch_);
  region(context, 0);
  spin_until([this] { return running_.load(std::memory_order_acquire) == 0; });
}

void ThreadTeam::worker(int thread) {
  for (uint32_t seen = 0;;) {
    wait_for_region(seen);
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    region_(context_, thread);
    running_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void ThreadTeam::wait_for_region(uint32_t seen) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  for (int spins = 1; epoch_.load(std::memory_order_acquire) == seen; ++spins) {
    _mm_pause();
    if (spins % 64 != 0 || std::chrono::steady_clock::now() < deadline) continue;
    sleepers_.fetch_add(1);
    while (epoch_.load() == seen) futex_wait(epoch_, seen);
    sleepers_.fetch_sub(1);
  }
}

// Each thread counts its arrivals in a line of its own and looks at those of the others: one line on its way from core to
// core between the last arrival and the end of the waiting, where a common count takes three. No thread is ever more than
// one arrival ahead.
void ThreadTeam::barrier(int thread) {
  if (num_threads_ == 1) return;
  std::atomic<uint32_t>& mine = arrivals_[thread].count;
  const uint32_t count = mine.load(std::memory_order_relaxed) + 1;
  mine.store(count, std::memory_order_release);
  for (int i = 0; i < num_threads_; ++i) {
    const std::atomic<uint32_t>& other = arrivals_[i].count;
    spin_until([&other, count] { return static_cast<int32_t>(other.load(std::memory_order_acquire) - count) >= 0; });
  }
}

}  // namespace octavo
