#include "runner/prepared_rows.h"

#include <algorithm>

namespace octavo {
namespace {

constexpr int64_t kForgotten = int64_t{8} << 20;  // bytes: more than a core's own cache holds
constexpr int64_t kMostTurns = 16;  // each takes memory

int turns(const PhaseList& program, int threads) {
  int64_t bytes = 0;
  for (const Phase& phase : program.phases())
    if (const auto* linear = std::get_if<LinearPhase>(&phase))
      for (const LinearPart& part : linear->parts) bytes += part.weight->bytes();
  const int64_t of_each = bytes / threads / std::max(1, program.num_linears());
  return static_cast<int>(std::clamp<int64_t>(kForgotten / std::max<int64_t>(1, of_each), 1, kMostTurns));
}

}  // namespace

PreparedRows::PreparedRows(const PhaseList& program, int threads, int64_t own_rows, int64_t shared_rows)
    : turns_(turns(program, threads)) {
  for (int i = 0; i < kNumInputKinds; ++i) {
    const InputKind kind = static_cast<InputKind>(i);
    const int64_t k = program.longest_input(kind);
    if (k == 0) continue;
    Memories& memories = of_kind_[i];
    for (int thread = 0; thread < threads; ++thread) memories.own.emplace_back(prepared_bytes(kind, own_rows, k));
    for (int turn = 0; turn < turns_; ++turn) memories.shared.emplace_back(prepared_bytes(kind, shared_rows, k));
  }
}

int64_t PreparedRows::bytes() const {
  int64_t total = 0;
  for (const Memories& memories : of_kind_) {
    for (const MappedMemory& memory : memories.own) total += static_cast<int64_t>(memory.bytes());
    for (const MappedMemory& memory : memories.shared) total += static_cast<int64_t>(memory.bytes());
  }
  return total;
}

}  // namespace octavo
