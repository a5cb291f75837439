#include "runner/step_profile.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <variant>

namespace octavo {
namespace {

constexpr const char* kNames[] = {"setup",    "rows",             "attention", "waiting",     "embed",  "rms_norm", "rope",
                                  "write_kv", "gated_activation", "add",       "select_rows", "prepare"};
static_assert(std::size(kNames) == StepProfile::kRowOps + std::variant_size_v<RowOp>);

}  // namespace

StepProfile::StepProfile(const PhaseList& program) : names_(std::begin(kNames), std::end(kNames)) {
  for (const Phase& phase : program.phases()) {
    const std::string name = phase_name(phase);
    const auto found = std::find(names_.begin(), names_.end(), name);
    kinds_.push_back(static_cast<int>(found - names_.begin()));
    if (found == names_.end()) names_.push_back(name);
  }
  spent_.assign(names_.size(), 0);
}

int64_t StepProfile::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void StepProfile::count(int kind, int thread, int64_t& start) {
  if (thread != 0) return;
  const int64_t end = now();
  spent_[kind] += end - std::exchange(start, end);
}

std::vector<std::pair<std::string, int64_t>> StepProfile::take() {
  std::vector<std::pair<std::string, int64_t>> result;
  for (size_t i = 0; i < names_.size(); ++i) result.emplace_back(names_[i], std::exchange(spent_[i], 0));
  return result;
}

}  // namespace octavo
