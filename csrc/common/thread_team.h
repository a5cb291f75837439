// A persistent team of threads that runs one parallel region at a time.
//
// The caller is thread 0. Between regions the others spin for a short while, then sleep, so an idle engine uses no CPU.
// Inside a region barrier() costs well under a microsecond while every thread has its own core.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace octavo {

class ThreadTeam {
 public:
  static constexpr int kMostThreads = 256;

  explicit ThreadTeam(int num_threads);  // throws std::invalid_argument unless 1 <= num_threads <= kMostThreads
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return num_threads_; }

  // Calls work(thread) once on every thread of the team, thread in [0, size()), and returns when all have returned.
  // `work` must not throw. Only one caller at a time.
  template <class Work>
  void run(Work&& work) {
    auto trampoline = [](void* context, int thread) { (*static_cast<std::remove_reference_t<Work>*>(context))(thread); };
    run_region(trampoline, static_cast<void*>(&work));
  }

  // Inside a region, on every thread of it: waits until all have arrived. What they wrote before is visible after.
  void barrier(int thread);

 private:
  using Region = void (*)(void* context, int thread);

  void run_region(Region region, void* context);
  void worker(int thread);
  void wait_for_region(uint32_t seen);

  struct alignas(64) Arrivals {
    std::atomic<uint32_t> count{0};
  };

  const int num_threads_;
  std::array<Arrivals, kMostThreads> arrivals_;  // of each thread, at barriers
  std::vector<std::thread> threads_;
  Region region_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};     // counts regions; a change wakes the workers
  alignas(64) std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<int> running_{0};        // workers still inside the region
  std::atomic<bool> stopping_{false};
};

// The half-open share of [0, count) that belongs to `thread` of `size`, in multiples of `grain` (the last one ragged).
struct Range {
  int64_t begin, end;
};
inline Range share(int64_t count, int thread, int size, int64_t grain = 1) {
  const int64_t units = (count + grain - 1) / grain;
  const int64_t begin = units * thread / size * grain, end = units * (thread + 1) / size * grain;
  return {begin < count ? begin : count, end < count ? end : count};
}

}  // namespace octavo
