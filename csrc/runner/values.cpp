#include "runner/values.h"

#include <algorithm>

#include "runner/rooms.h"
#include "runner/row_values.h"
#include "runner/segments.h"

namespace octavo {
namespace {

constexpr int64_t kRowAlign = 16;  // floats: rows begin on cache lines
constexpr std::array<int64_t, 2> kGrain{64, 8};  // a step has another number of rows each time
// A thread repeats at most so many rows beyond its share: more take longer than to wait for the others and to fetch what
// they have made.
constexpr int64_t kRowsInVain = 2;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Values::Values(const PhaseList& program, int threads, int64_t rows_at_work)
    : vocab_size_(program.vocab_size()),
      lasting_{lasting_buffers(program, Domain::kTokens), lasting_buffers(program, Domain::kLogits)},
      of_rows_(row_buffers(program)),
      rooms_(rooms(program, lasting_)) {
  int64_t floats = 0;
  for (size_t i = 0; i < rooms_.size(); ++i) {
    strides_.push_back(round_up(program.buffer_widths()[i], kRowAlign));
    offsets_.push_back(floats);
    if (rooms_[i] >= static_cast<int>(all_rows_.size())) all_rows_.resize(rooms_[i] + 1);
    if (!lasting_[0][i] || !lasting_[1][i] || of_rows_[i]) floats += rows_at_work * strides_[i];
  }
  for (int thread = 0; thread < threads; ++thread) at_work_.emplace_back(floats * sizeof(float));
}

void Values::resize(int64_t num_tokens, int64_t num_logits) {
  const std::array<int64_t, 2> rows{num_tokens, num_logits};
  if (num_logits > capacity_[index(Domain::kLogits)])
    logits_ = MappedMemory(round_up(num_logits, kGrain[1]) * vocab_size_ * sizeof(float));
  const int64_t threads = static_cast<int64_t>(at_work_.size());
  for (int domain = 0; domain < 2; ++domain)
    repeats_[domain] = threads > 1 && rows[domain] - (rows[domain] + threads - 1) / threads <= kRowsInVain;
  for (int domain = 0; domain < 2; ++domain)
    if (rows[domain] > capacity_[domain]) capacity_[domain] = round_up(rows[domain], kGrain[domain]);
  for (size_t i = 0; i < rooms_.size(); ++i) {
    int64_t wanted = 0;
    for (int domain = 0; domain < 2; ++domain)
      if (lasting_[domain][i]) wanted = std::max(wanted, capacity_[domain]);
    const size_t bytes = wanted * strides_[i] * sizeof(float);
    if (bytes == 0) continue;
    MappedMemory& room = all_rows_[rooms_[i]];
    if (bytes > room.bytes()) room = MappedMemory(bytes);
  }
}

int64_t Values::bytes() const {
  int64_t total = static_cast<int64_t>(logits_.bytes());
  for (const MappedMemory& memory : all_rows_) total += memory.bytes();
  for (const MappedMemory& memory : at_work_) total += memory.bytes();
  return total;
}

}  // namespace octavo
