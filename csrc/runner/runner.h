// Runs a compiled program over one step: the only native call that a step needs before sampling.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "attention/kv_cache.h"
#include "attention/kv_writer.h"
#include "common/isa.h"
#include "common/mapped_memory.h"
#include "common/thread_team.h"
#include "common/work_shares.h"
#include "rows/row_kernels.h"
#include "runner/phases.h"
#include "runner/prepared_rows.h"
#include "runner/step_profile.h"
#include "runner/step_view.h"
#include "runner/values.h"

namespace octavo {

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
  // In a step of few rows: each phase, and whether the threads meet after it.
  std::vector<std::pair<std::string, bool>> few_row_meetings() const;

  // Nanoseconds of thread 0 since the last call, by what it did: where a step's time goes. Linears are told apart by their
  // shape. In detail, row operations are too, and waiting for other threads is counted by itself instead of with what was
  // waited for; operations then take turns over all rows of a thread's share instead of over each row (the same numbers).
  std::vector<std::pair<std::string, int64_t>> take_profile() { return profile_.take(); }
  void profile_in_detail(bool detail) { detail_ = detail; }

 private:
  struct Slot {
    int32_t sequence, block, offset;
  };

  void reserve_scratch();
  void map_slots(const StepView& step);
  void build_plans(const StepView& step);
  void fill_rotary(const StepView& step, int thread);
  void run_thread(const StepView& step, int thread, int64_t start);
  bool owns_rows(Domain domain, const StepView& step) const;
  Range own_rows(Domain domain, const StepView& step, int thread) const;
  bool meets_after(size_t phase) const;
  RowBlock all_rows(Domain domain, const StepView& step, int thread) const;
  size_t run_own_rows(size_t first, const StepView& step, int thread, WorkShares& work, int64_t& start);
  void run_rows(const RowPhase& phase, const StepView& step, const RowBlock& block, int thread, int64_t& start);
  void run_row_op(const RowOp& op, const StepView& step, int64_t row, const RowBlock& block, int thread);
  static Range group_to_write(const std::vector<Slot>& slots, int64_t row, Range rows);
  TokenPlace place_to_write(const WriteKvRow& op, int64_t row, int thread) const;
  void find_next_weights();
  void run_linear(const LinearPhase& phase, const RowBlock& block, Range panels, int thread, const uint8_t* next);
  void run_columns(const LinearPhase& phase, const RowBlock& block, int thread, WorkShares& work, const uint8_t* next);
  void deal_out(size_t phase, const StepView& step, int thread, WorkShares& work) const;
  void run_attention(const AttentionPhase& phase, const StepView& step, int thread, WorkShares& work);

  int64_t rows_of(Domain domain, const StepView& step) const {
    return domain == Domain::kTokens ? step.num_tokens : step.num_logits;
  }

  PhaseList program_;
  Isa isa_;
  ThreadTeam& team_;
  const RowKernels& kernels_;
  const KvWriter& kv_writer_;
  KvShape kv_shape_;
  std::unique_ptr<KvCache> kv_;

  Values values_;
  PreparedRows prepared_;
  std::vector<MappedMemory> scratch_;                 // per thread
  std::vector<std::vector<float>> cosines_, sines_;  // per rotary table: [tokens, half]
  std::vector<std::vector<Slot>> slots_;             // per KV group: [tokens]
  std::vector<AttentionPlan> plans_;
  StepProfile profile_;
  bool meets_at_start_ = true;
  std::vector<bool> meetings_;      // of each phase: see meetings.h
  std::vector<std::vector<const uint8_t*>> next_weights_;  // of each phase and thread: see find_next_weights
  WorkShares work_[2];  // of the phase at work, and of the next one
  bool detail_ = false;
};

}  // namespace octavo
