// Where rows lie in the form in which linears read them, one linear at a time: in a memory of each thread, or, where all threads
// read what each has written a part of, in shared ones.
//
// To write lines that another core has just read takes several times as long. So linears take turns with the shared
// memories, as many as it takes until a core has read more weights than its own cache holds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/mapped_memory.h"
#include "runner/phases.h"
#include "runner/values.h"

namespace octavo {

class PreparedRows {
 public:
  // own_rows, shared_rows: the most that lie in a thread's own memory, and in a shared one.
  PreparedRows(const PhaseList& program, int threads, int64_t own_rows, int64_t shared_rows);

  // Those of a linear, counted from 0.
  std::byte* at(InputKind kind, int linear, const RowBlock& block) const {
    const Memories& memories = of_kind_[static_cast<int>(kind)];
    return block.shared ? memories.shared[linear % turns_].data() : memories.own[block.memory].data();
  }
  int64_t bytes() const;

 private:
  struct Memories {
    std::vector<MappedMemory> own;     // of each thread
    std::vector<MappedMemory> shared;  // of each turn
  };

  std::array<Memories, kNumInputKinds> of_kind_;
  int turns_;
};

}  // namespace octavo
