// Where the time of steps goes: nanoseconds of thread 0 by what it did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runner/phases.h"

namespace octavo {

class StepProfile {
 public:
  // What every program has; the operations on rows are kRowOps + RowOp's index, and behind them come the linears by shape.
  enum Kind { kSetup, kRows, kAttention, kWaiting, kRowOps };

  explicit StepProfile(const PhaseList& program);

  static int64_t now();  // nanoseconds
  int kind_of(size_t phase) const { return kinds_[phase]; }
  // Counts the time from `start`, which becomes now, as `kind`; of thread 0 only.
  void count(int kind, int thread, int64_t& start);
  // All kinds by name, and their nanoseconds since the last call.
  std::vector<std::pair<std::string, int64_t>> take();

 private:
  std::vector<std::string> names_;
  std::vector<int64_t> spent_;  // of each name
  std::vector<int> kinds_;      // of each phase: which name
};

}  // namespace octavo
