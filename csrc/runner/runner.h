// Runs a compiled program over one step: the only native call that a step needs before sampling.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "attention/kv_cache.h"
#include "common/isa.h"
#include "common/mapped_memory.h"
#include "common/thread_team.h"
#include "rows/row_kernels.h"
#include "runner/phases.h"
#include "runner/values.h"

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


class Runner {
 public:
  // The team must outlive the runner.
  Runner(PhaseList program, Isa isa, KvType kv_type, ThreadTeam& team);

  int64_t block_bytes(int block_size) const;
  void reserve_kv(int64_t num_blocks, int block_size);
  void commit_blocks(int64_t first, int64_t count);
  void release_blocks(int64_t first, int64_t count);

  // Throws std::invalid_argument where the step does not fit the program or the KV memory; nothing has run then.
  // Returns the logits [num_logits, vocab_size], valid until the next call.
  float* execute(const StepView& step);

  int64_t vocab_size() const { return program_.vocab_size(); }
  int64_t arena_bytes() const;

  // Nanoseconds of thread 0 since the last call, by what it did: where a step's time goes. Linears are told apart by their
  // shape. In detail, row operations are too, and waiting for other threads is counted by itself instead of with what was
  // waited for; operations then take turns over all rows of a thread's share instead of over each row (the same numbers).
  std::vector<std::pair<std::string, int64_t>> take_profile();
  void profile_in_detail(bool detail) { detail_ = detail; }

 private:
  struct Slot {
    int32_t block, offset;
  };

  void check(const StepView& step) const;
  void check_sequence(const StepView& step, int64_t seq) const;
  void reserve_linear_memory();
  void map_slots(const StepView& step);
  void build_plans(const StepView& step);
  void fill_rotary(const StepView& step, int thread);
  void run_thread(const StepView& step, int thread, int64_t start);
  bool owns_rows(Domain domain, const StepView& step) const;
  void name_profile();
  void count_time(int kind, int thread, int64_t& start);
  size_t run_own_rows(size_t first, const StepView& step, int thread, int64_t& start);
  void run_rows(const RowPhase& phase, const StepView& step, const RowBlock& block, int thread, int64_t& start);
  void run_row_op(const RowOp& op, const StepView& step, int64_t row, const RowBlock& block);
  void find_next_weights();
  void run_linear(const LinearPhase& phase, const RowBlock& block, Range panels, int thread, const uint8_t* next);
  void run_attention(const AttentionPhase& phase, int thread);

  int64_t rows_of(Domain domain, const StepView& step) const {
    return domain == Domain::kTokens ? step.num_tokens : step.num_logits;
  }

  PhaseList program_;
  Isa isa_;
  ThreadTeam& team_;
  const RowKernels& kernels_;
  KvShape kv_shape_;
  std::unique_ptr<KvCache> kv_;

  Values values_;
  std::array<std::vector<MappedMemory>, kNumInputKinds> prepared_;  // the linears' input, one at a time; per thread
  std::vector<MappedMemory> scratch_;                 // per thread
  std::vector<std::vector<float>> cosines_, sines_;  // per rotary table: [tokens, half]
  std::vector<std::vector<Slot>> slots_;             // per KV group: [tokens]
  std::vector<AttentionPlan> plans_;
  std::vector<std::string> profile_names_;
  std::vector<int64_t> profile_;    // of each name
  std::vector<int> profile_kinds_;  // of each phase: which name
  std::vector<std::vector<const uint8_t*>> next_weights_;  // of each phase and thread: see find_next_weights
  bool detail_ = false;
};

}  // namespace octavo
