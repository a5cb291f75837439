// What a step asks for, and the check that it can be done.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/phases.h"

namespace octavo {

// octavo.engine.step.Step as raw pointers; the shapes are checked by the bindings.
struct StepView {
  int64_t num_tokens, num_seqs, num_logits, num_copies;
  const int32_t* token_ids;        // [num_tokens]
  const int32_t* positions;        // [num_tokens]
  const int32_t* query_start_loc;  // [num_seqs + 1]
  const int32_t* seq_lens;         // [num_seqs]
  const int32_t* logits_rows;      // [num_logits]
  const int32_t* copies;           // [num_copies, 2]
  struct Table {
    const int32_t* data;  // [num_seqs, columns]
    int64_t columns;
  };
  std::vector<Table> block_tables;  // one per KV group
};

// Throws std::invalid_argument, which says what is wrong, for a step that does not fit the program or names blocks that are not
// there: no such step must reach a kernel.
void check_step(const StepView& step, const PhaseList& program, int block_size, int64_t num_blocks);

}  // namespace octavo
