#include "runner/rooms.h"

#include <algorithm>

#include "runner/operands.h"
#include "runner/row_values.h"

namespace octavo {
namespace {

// Goes through a program from its end and finds which values of token rows are still to be read where others are written.
class Conflicts {
 public:
  explicit Conflicts(const PhaseList& program)
      : widths_(program.buffer_widths()),
        live_(widths_.size()),
        found_(widths_.size(), std::vector<bool>(widths_.size())) {
    for (size_t i = program.phases().size(); i-- > 0;) std::visit(*this, program.phases()[i]);
  }

  bool between(int a, int b) const { return found_[a][b] || found_[b][a]; }

  void operator()(const RowPhase& phase) {
    for (size_t i = phase.ops.size(); i-- > 0;) {
      written_.clear(), read_.clear();
      std::visit([this](const auto& each) { visit_views(each, *this); }, phase.ops[i]);
      pass();
    }
  }
  void operator()(const LinearPhase& phase) {
    written_.clear(), read_.clear();
    if (phase.accumulate) read(phase.out);
    write(phase.out);
    pass();
  }
  void operator()(const AttentionPhase& phase) {
    written_.clear(), read_.clear();
    write(phase.out);
    if (phase.q.offset != phase.out.offset) read(phase.q);
    pass();
    live_[phase.q.buffer] = true;
  }

  void read(const View& view) {
    if (view.domain == Domain::kTokens) read_.push_back(view);
  }
  void read_other(const View& view) { read(view); }
  void write(const View& view) {
    if (view.domain == Domain::kTokens && view.buffer != kLogitsBuffer) written_.push_back(view);
  }

 private:
  // Over the operation whose views are known, to the one before it.
  void pass() {
    for (const View& out : written_) {
      for (size_t other = 0; other < live_.size(); ++other)
        if (live_[other]) found_[out.buffer][other] = true;
      for (const View& x : read_) found_[out.buffer][x.buffer] = true;
    }
    for (const View& out : written_)
      if (out.width == widths_[out.buffer]) live_[out.buffer] = false;
    for (const View& x : read_) live_[x.buffer] = true;
  }

  const std::vector<int64_t>& widths_;
  std::vector<bool> live_;                // by buffer: will be read
  std::vector<std::vector<bool>> found_;  // by buffer: others that are live where it is written
  std::vector<View> written_, read_;      // by the operation at hand
};

}  // namespace

std::vector<int> rooms(const PhaseList& program, const std::array<std::vector<bool>, 2>& lasting) {
  const std::vector<int64_t>& widths = program.buffer_widths();
  const Conflicts conflicts(program);
  const std::vector<bool> of_rows = row_buffers(program);
  std::vector<int> result(widths.size(), -1);
  std::vector<std::vector<int>> guests;  // by room
  const auto fits = [&](int buffer, const std::vector<int>& others) {
    return std::all_of(others.begin(), others.end(), [&](int other) {
      return widths[buffer] == widths[other] && (of_rows[buffer] || of_rows[other]) && !lasting[1][buffer] &&
             !lasting[1][other] && !conflicts.between(buffer, other);
    });
  };
  for (int buffer = 0; buffer < static_cast<int>(widths.size()); ++buffer) {
    if (!lasting[0][buffer] && !lasting[1][buffer]) continue;
    size_t room = 0;
    while (room < guests.size() && !fits(buffer, guests[room])) ++room;
    if (room == guests.size()) guests.emplace_back();
    guests[room].push_back(buffer);
    result[buffer] = static_cast<int>(room);
  }
  return result;
}

}  // namespace octavo
