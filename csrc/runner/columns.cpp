#include "runner/columns.h"

#include <utility>
#include <vector>

#include "runner/operands.h"

namespace octavo {
namespace {

// A visitor of operands that treats all alike.
template <class Visit>
struct EachView {
  Visit& visit;

  template <class AnyView>
  void read(AnyView& view) { visit(view); }
  template <class AnyView>
  void read_other(AnyView& view) { visit(view); }
  template <class AnyView>
  void write(AnyView& view) { visit(view); }
};

// Calls visit(view) for every view of a phase.
template <class AnyPhase, class Visit>
void visit_all(AnyPhase& phase, Visit visit) {
  EachView<Visit> views{visit};
  if (auto* rows = std::get_if<RowPhase>(&phase)) {
    for (auto& op : rows->ops) std::visit([&views](auto& each) { visit_views(each, views); }, op);
  } else if (auto* attention = std::get_if<AttentionPhase>(&phase)) {
    visit(attention->q), visit(attention->out);
  } else if (auto& linear = std::get<LinearPhase>(phase); linear.out.buffer != kLogitsBuffer) {
    visit(linear.out);
  }
}

// Where a column has gone.
struct Place {
  int buffer = -1;
  int64_t column = 0;
};

// Of one buffer: what views say about its columns.
struct Columns {
  explicit Columns(int64_t width) : named(width), joined(width) {}
  void name(const View& view) {
    for (int64_t i = view.offset; i < view.offset + view.width; ++i) {
      named[i] = true;
      if (i > view.offset) joined[i] = true;
    }
  }

  std::vector<bool> named, joined;  // joined: with the column before it
};

// By buffer, by column. widths: of the new buffers.
std::vector<std::vector<Place>> deal_out(const std::vector<Columns>& buffers, std::vector<int64_t>& widths) {
  std::vector<std::vector<Place>> places;
  for (const Columns& columns : buffers) {
    places.emplace_back(columns.named.size());
    for (size_t i = 0; i < columns.named.size(); ++i) {
      if (!columns.named[i]) continue;
      if (!columns.joined[i]) widths.push_back(0);
      places.back()[i] = {static_cast<int>(widths.size()) - 1, widths.back()++};
    }
  }
  return places;
}

}  // namespace

PhaseList split_columns(const PhaseList& program) {
  std::vector<Columns> buffers;
  for (int64_t width : program.buffer_widths()) buffers.emplace_back(width);
  for (const Phase& phase : program.phases())
    visit_all(phase, [&buffers](const View& view) { buffers[view.buffer].name(view); });
  std::vector<int64_t> widths;
  const std::vector<std::vector<Place>> places = deal_out(buffers, widths);
  std::vector<Phase> phases = program.phases();
  for (Phase& phase : phases) {
    auto* const linear = std::get_if<LinearPhase>(&phase);
    const int64_t before = linear == nullptr ? 0 : linear->out.offset;
    visit_all(phase, [&places](View& view) {
      const Place place = places[view.buffer][view.offset];
      view.buffer = place.buffer;
      view.offset = place.column;
    });
    if (linear == nullptr) continue;
    for (LinearPart& part : linear->parts) part.column += linear->out.offset - before;
  }
  return program.with(std::move(phases), std::move(widths));
}

}  // namespace octavo
