#include "runner/meetings.h"

#include <algorithm>

#include "runner/operands.h"
#include "runner/row_values.h"

namespace octavo {
namespace {

// Columns of a joint value, a place of a KV group, or the angles.
struct Memory {
  enum Kind { kColumns, kKeysAndValues, kAngles } kind;
  int number;            // of the buffer, or of the KV group
  int64_t begin, end;    // columns, or the place
  int plan = -1;         // keys and values: that by which threads write and read their own
};

bool overlap(const Memory& a, const Memory& b) {
  return a.kind == b.kind && a.number == b.number && a.begin < b.end && b.begin < a.end;
}

bool overlap(const std::vector<Memory>& a, const std::vector<Memory>& b) {
  const auto in_b = [&b](const Memory& each) {
    return std::any_of(b.begin(), b.end(), [&each](const Memory& other) { return overlap(each, other); });
  };
  return std::any_of(a.begin(), a.end(), in_b);
}

const Memory kStepAngles{Memory::kAngles, 0, 0, 1};

// What all threads see of the work of one phase.
struct Accesses {
  Accesses(const Phase& phase, const PhaseList& program, const std::vector<bool>& row_buffers)
      : plans(program.plans()), of_rows(row_buffers) {
    std::visit(*this, phase);
  }

  void operator()(const RowPhase& phase) {
    for (const RowOp& op : phase.ops) {
      std::visit([this](const auto& each) { visit_views(each, *this); }, op);
      if (std::holds_alternative<RopeRow>(op)) reads.push_back(kStepAngles);
      if (const auto* kv = std::get_if<WriteKvRow>(&op))
        writes.push_back(keys_and_values(kv->group, kv->place, kv->plan));
    }
  }
  void operator()(const LinearPhase& phase) {
    if (phase.accumulate) read(phase.out);
    write(phase.out);
  }
  void operator()(const AttentionPhase& phase) {
    read(phase.q);
    write(phase.out);
    reads.push_back(keys_and_values(plans[phase.plan].group, phase.place, phase.plan));
  }

  void read(const View& view) { add(view, reads); }
  void read_other(const View& view) { add(view, reads); }
  void write(const View& view) { add(view, writes); }

  const std::vector<PlanShape>& plans;
  const std::vector<bool>& of_rows;
  std::vector<Memory> reads, writes;

 private:
  static Memory keys_and_values(int group, int place, int plan) {
    return {Memory::kKeysAndValues, group, place, place + 1, plan};
  }
  void add(const View& view, std::vector<Memory>& to) const {
    if (view.buffer != kLogitsBuffer && of_rows[view.buffer]) return;
    to.push_back({Memory::kColumns, view.buffer, view.offset, view.offset + view.width});
  }
};

// What threads have done since they met last.
class SinceMeeting {
 public:
  bool forbids(const Accesses& next) const {
    return overlap(next.writes, reads_) || overlap(next.writes, writes_) ||
           std::any_of(next.reads.begin(), next.reads.end(), [this](const Memory& read) { return hides(read); });
  }
  void add(const Accesses& done) {
    reads_.insert(reads_.end(), done.reads.begin(), done.reads.end());
    writes_.insert(writes_.end(), done.writes.begin(), done.writes.end());
  }
  void add_write(const Memory& memory) { writes_.push_back(memory); }
  void meet() { reads_.clear(), writes_.clear(); }

 private:
  // Whether another thread may have written what is to be read.
  bool hides(const Memory& read) const {
    return std::any_of(writes_.begin(), writes_.end(), [&read](const Memory& write) {
      return overlap(read, write) && (write.kind != Memory::kKeysAndValues || write.plan != read.plan);
    });
  }

  std::vector<Memory> reads_, writes_;
};

}  // namespace

std::vector<bool> meetings(const PhaseList& program, bool& meet_at_start) {
  const std::vector<Phase>& phases = program.phases();
  const std::vector<bool> of_rows = row_buffers(program);
  std::vector<bool> before(phases.size() + 1);
  SinceMeeting since;
  since.add_write(kStepAngles);
  for (size_t i = 0; i < phases.size(); ++i) {
    const Accesses accesses(phases[i], program, of_rows);
    before[i] = since.forbids(accesses);
    if (before[i]) since.meet();
    since.add(accesses);
  }
  before.back() = true;
  meet_at_start = before.front();
  return {before.begin() + 1, before.end()};
}

}  // namespace octavo
