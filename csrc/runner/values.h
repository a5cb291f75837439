// Where the values of a step live: a row of float32 for each token (or wanted logit) in each buffer of the program.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/mapped_memory.h"
#include "common/thread_team.h"
#include "runner/phases.h"

namespace octavo {

// Rows that one thread takes through row phases and linears, and the rows that lie together in a memory of rows at work.
struct RowBlock {
  Range rows;     // the thread does the row operations of these
  Range at_work;  // and reads these in linears: the same ones, or all
  int memory;     // where it finds what is prepared for linears: its own, or that of thread 0, which serves all
  bool shared = false;  // whether it serves all
};

// Buffers whose values last beyond a segment hold all rows of a step, in memory that those of other times share
// (rooms.h); the others hold the rows at work, one memory a thread, of which a thread with rows of its own uses its own,
// and the first one serves all while they share rows. While threads repeat rows, each has the row values (row_values.h)
// in its own memory and shares the joint ones.
class Values {
 public:
  Values(const PhaseList& program, int threads, int64_t rows_at_work);

  // For the next step. Grows to the largest one seen; memory that a step does not touch is not committed. Values are lost.
  void resize(int64_t num_tokens, int64_t num_logits);

  // Whether threads repeat all operations on the rows of this domain in this step: there are few.
  bool repeats(Domain domain) const { return repeats_[index(domain)]; }

  float* at(const View& view, int64_t row, const RowBlock& block) const {
    if (view.buffer == kLogitsBuffer) return logits() + row * vocab_size_;
    const int domain = index(view.domain);
    const bool repeated = repeats_[domain] && of_rows_[view.buffer];
    if (lasting_[domain][view.buffer] && !repeated)
      return floats(all_rows_[rooms_[view.buffer]]) + row * stride(view) + view.offset;
    const int memory = repeats_[domain] && !repeated ? 0 : block.memory;
    return floats(at_work_[memory]) + offsets_[view.buffer] + (row - block.at_work.begin) * stride(view) + view.offset;
  }
  float* logits() const { return floats(logits_); }
  // Floats from row to row.
  int64_t stride(const View& view) const { return view.buffer == kLogitsBuffer ? vocab_size_ : strides_[view.buffer]; }

  int64_t bytes() const;

 private:
  static int index(Domain domain) { return static_cast<int>(domain); }
  static float* floats(const MappedMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

  int64_t vocab_size_;
  std::vector<int64_t> strides_;               // by buffer
  std::vector<int64_t> offsets_;               // by buffer: its first row in a memory of rows at work, in floats
  std::array<std::vector<bool>, 2> lasting_;   // by domain, by buffer
  std::vector<bool> of_rows_;                  // by buffer: holds row values
  std::array<bool, 2> repeats_{};              // by domain
  std::array<int64_t, 2> capacity_{0, 0};      // rows by domain
  std::vector<int> rooms_;                     // by buffer: where its values last (rooms.h), or -1
  std::vector<MappedMemory> all_rows_;         // by room
  std::vector<MappedMemory> at_work_;          // by thread
  MappedMemory logits_;
};

}  // namespace octavo
