#include "runner/row_values.h"

#include <algorithm>
#include <utility>

#include "runner/operands.h"

namespace octavo {
namespace {

// Which buffers operations on rows write, and which ones linears and attention.
struct Writers {
  explicit Writers(const PhaseList& program) : rows(program.buffer_widths().size()), jointly(rows.size()) {
    for (const Phase& phase : program.phases()) std::visit(*this, phase);
  }

  void operator()(const RowPhase& phase) {
    for (const RowOp& op : phase.ops) std::visit([this](const auto& each) { visit_views(each, *this); }, op);
  }
  void operator()(const LinearPhase& phase) {
    if (phase.out.buffer != kLogitsBuffer) jointly[phase.out.buffer] = true;
  }
  void operator()(const AttentionPhase& phase) { jointly[phase.out.buffer] = true; }

  void read(const View&) {}
  void read_other(const View&) {}
  void write(const View& view) { rows[view.buffer] = true; }

  std::vector<bool> rows, jointly;
};

// Walks through a program once and lets each view name the twin where that holds its columns.
class Renaming {
 public:
  // twins: by buffer, its twin or -1.
  Renaming(const PhaseList& program, const std::vector<int>& twins) : twins_(twins) {
    for (int64_t width : program.buffer_widths()) in_twin_.emplace_back(width);
  }

  void operator()(RowPhase& phase) {
    for (RowOp& op : phase.ops) std::visit([this](auto& each) { visit_views(each, *this); }, op);
  }
  void operator()(LinearPhase& phase) {
    if (phase.out.buffer == kLogitsBuffer) return;
    if (phase.accumulate && holds(phase.out) != Part::kNone) conflicts_.push_back(phase.out.buffer);
    mark(phase.out, false);
  }
  void operator()(AttentionPhase& phase) {
    read(phase.q);
    mark(phase.out, false);
  }

  void read(View& view) {
    const Part part = holds(view);
    if (part == Part::kSome) conflicts_.push_back(view.buffer);
    if (part == Part::kAll) view.buffer = twins_[view.buffer];
  }
  void read_other(View& view) { read(view); }
  void write(View& view) {
    if (twins_[view.buffer] < 0) return;
    mark(view, true);
    view.buffer = twins_[view.buffer];
  }

  // Buffers that cannot have a twin.
  const std::vector<int>& conflicts() const { return conflicts_; }

 private:
  enum class Part { kNone, kSome, kAll };

  Part holds(const View& view) const {
    const auto begin = in_twin_[view.buffer].begin() + view.offset;
    const int64_t count = std::count(begin, begin + view.width, true);
    return count == 0 ? Part::kNone : count == view.width ? Part::kAll : Part::kSome;
  }
  void mark(const View& view, bool in_twin) {
    const auto begin = in_twin_[view.buffer].begin() + view.offset;
    std::fill(begin, begin + view.width, in_twin);
  }

  const std::vector<int>& twins_;
  std::vector<std::vector<bool>> in_twin_;  // by buffer, by column
  std::vector<int> conflicts_;
};

// Whether an operation writes joint values.
struct JointWrites {
  const std::vector<bool>& row_buffers;
  bool found = false;

  void read(const View&) {}
  void read_other(const View&) {}
  void write(const View& view) { found |= !row_buffers[view.buffer]; }
};

bool writes_jointly(const RowOp& op, const std::vector<bool>& row_buffers) {
  JointWrites writes{row_buffers};
  std::visit([&writes](const auto& each) { visit_views(each, writes); }, op);
  return writes.found;
}

// Cuts a phase where operations that write joint values and others meet.
void cut(const RowPhase& phase, const std::vector<bool>& row_buffers, std::vector<Phase>& pieces) {
  RowPhase piece{phase.domain, {}};
  for (const RowOp& op : phase.ops) {
    const bool joint = writes_jointly(op, row_buffers);
    if (!piece.ops.empty() && joint != piece.joint)
      pieces.emplace_back(std::exchange(piece, RowPhase{phase.domain, {}}));
    piece.joint = joint;
    piece.ops.push_back(op);
  }
  piece.closed = phase.closed;
  pieces.emplace_back(std::move(piece));
}

// For each writing of K and V: the plan of the next attention, where that reads what it wrote.
void find_readers(std::vector<Phase>& phases, const std::vector<PlanShape>& plans) {
  const AttentionPhase* next = nullptr;
  for (size_t i = phases.size(); i-- > 0;) {
    if (const auto* attention = std::get_if<AttentionPhase>(&phases[i])) next = attention;
    auto* const rows = std::get_if<RowPhase>(&phases[i]);
    if (rows == nullptr || next == nullptr) continue;
    for (RowOp& op : rows->ops) {
      auto* const write = std::get_if<WriteKvRow>(&op);
      if (write == nullptr || write->place != next->place) continue;
      const PlanShape& plan = plans[next->plan];
      if (write->group == plan.group && write->kv_heads == plan.kv_heads) write->plan = next->plan;
    }
  }
}

}  // namespace

std::vector<bool> row_buffers(const PhaseList& program) {
  std::vector<bool> result = Writers(program).jointly;
  result.flip();
  return result;
}

PhaseList separate_row_values(const PhaseList& program) {
  const Writers writers(program);
  std::vector<int64_t> widths = program.buffer_widths();
  std::vector<int> twins(widths.size(), -1);
  for (size_t i = 0; i < twins.size(); ++i) {
    if (!writers.rows[i] || !writers.jointly[i]) continue;
    twins[i] = static_cast<int>(widths.size());
    widths.push_back(widths[i]);
  }
  std::vector<Phase> renamed;
  for (bool settled = false; !settled;) {
    renamed = program.phases();
    Renaming renaming(program, twins);
    for (Phase& phase : renamed) std::visit(renaming, phase);
    for (int buffer : renaming.conflicts()) twins[buffer] = -1;
    settled = renaming.conflicts().empty();
  }
  PhaseList whole = program.with(std::move(renamed), std::move(widths));
  std::vector<Phase> pieces;
  const std::vector<bool> of_rows = row_buffers(whole);
  for (const Phase& phase : whole.phases()) {
    if (const auto* rows = std::get_if<RowPhase>(&phase)) {
      cut(*rows, of_rows, pieces);
    } else {
      pieces.push_back(phase);
    }
  }
  find_readers(pieces, whole.plans());
  return whole.with(std::move(pieces), whole.buffer_widths());
}

}  // namespace octavo
