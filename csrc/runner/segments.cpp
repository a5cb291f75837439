#include "runner/segments.h"

#include <algorithm>

#include "runner/operands.h"

namespace octavo {
namespace {

// Whether `next` may read what other threads write in `phase`, when each thread keeps its own rows.
bool reads_other_rows(const Phase& phase, const Phase& next) {
  const auto* rows = std::get_if<RowPhase>(&phase);
  if (rows != nullptr && rows->closed) return true;
  return domain_of(next) == nullptr || *domain_of(next) != *domain_of(phase);
}

// Follows the values of one domain through a program, segment by segment.
class Lifetimes {
 public:
  Lifetimes(const PhaseList& program, Domain domain)
      : widths_(program.buffer_widths()), domain_(domain), written_(widths_.size()), lasting_(widths_.size()) {}

  void begin_segment() { std::fill(written_.begin(), written_.end(), false); }

  void read(const View& view) {
    if (view.domain == domain_ && !written_[view.buffer]) lasting_[view.buffer] = true;
  }
  void write(const View& view) {
    if (view.domain == domain_ && view.buffer != kLogitsBuffer && view.width == widths_[view.buffer])
      written_[view.buffer] = true;
  }
  void read_other(const View& view) {
    if (view.domain == domain_) lasting_[view.buffer] = true;
  }

  void operator()(const RowPhase& phase) {
    for (const RowOp& op : phase.ops) std::visit([this](const auto& each) { visit_views(each, *this); }, op);
  }
  void operator()(const LinearPhase& phase) {
    if (phase.accumulate) read(phase.out);
    write(phase.out);
  }
  void operator()(const AttentionPhase& phase) { read_other(phase.q), read_other(phase.out); }

  std::vector<bool> lasting() const { return lasting_; }

 private:
  const std::vector<int64_t>& widths_;
  Domain domain_;
  std::vector<bool> written_;  // by buffer: all of its columns, in this segment
  std::vector<bool> lasting_;
};

}  // namespace

const Domain* domain_of(const Phase& phase) {
  if (const auto* rows = std::get_if<RowPhase>(&phase)) return &rows->domain;
  if (const auto* linear = std::get_if<LinearPhase>(&phase)) return &linear->domain;
  return nullptr;
}

size_t segment_end(const std::vector<Phase>& phases, size_t first) {
  size_t end = first + 1;
  if (domain_of(phases[first]) == nullptr) return end;
  while (end < phases.size() && !reads_other_rows(phases[end - 1], phases[end])) ++end;
  return end;
}

std::vector<bool> lasting_buffers(const PhaseList& program, Domain domain) {
  const std::vector<Phase>& phases = program.phases();
  Lifetimes lifetimes(program, domain);
  for (size_t first = 0; first < phases.size();) {
    lifetimes.begin_segment();
    const size_t end = segment_end(phases, first);
    for (; first < end; ++first) std::visit(lifetimes, phases[first]);
  }
  return lifetimes.lasting();
}

}  // namespace octavo
