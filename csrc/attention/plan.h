// Who computes what: the attention of one step, for the layers of one KV group and shape, dealt out to the threads.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/call.h"
#include "common/thread_team.h"

namespace octavo {

// One step as attention sees it. The arrays are borrowed until the step is done.
struct AttentionStep {
  int num_seqs;
  const int32_t* query_start_loc;  // [num_seqs + 1]
  const int32_t* seq_lens;         // [num_seqs] context after this step, at least the step's own tokens
  const int32_t* block_table;      // [num_seqs, table_stride]; -1 only behind the window or past the end
  int64_t table_stride;
};

struct AttentionShape {
  int heads, kv_heads, head_dim;
  float scale;
  int window;  // positions that a token sees, itself included; 0 for all
};

// Built once per step and reused for every layer of the group; keeps its memory from step to step.
//
// The unit of work is (task, partition). All of them form one list, ordered by sequence, KV head, rows and partition,
// that is cut into runs of equal estimated cost, one per thread. A task that straddles a cut is split only where it is
// worth a merge. Neither cuts nor splits change any bit of the result: partitions are always reduced on their own and
// merged in ascending order.
class AttentionPlan {
 public:
  // Throws std::invalid_argument where heads is not a multiple of kv_heads or a size is not positive.
  void build(const AttentionStep& step, const AttentionShape& shape, const KvLayout& layout, int num_threads);

  // Of the KV heads of a sequence's new tokens, those that `thread` should write to the cache: it reads them. Each head is
  // one thread's.
  HeadRange heads_to_write(int thread, int seq) const;
  // Whether a thread reads keys or values of the step's own tokens that, by heads_to_write, another one writes.
  bool shares_new_tokens() const { return shares_new_tokens_; }

  bool needs_merge() const { return !split_tasks_.empty(); }
  const AttentionShape& shape() const { return shape_; }
  int num_threads() const { return num_threads_; }
  // Those that were dealt out to a thread; all threads' have about the same cost.
  Range fragments(int thread) const { return {fragment_begin_[thread], fragment_begin_[thread + 1]}; }
  int64_t num_fragments() const { return static_cast<int64_t>(fragments_.size()); }

  // The parts of a call that the plan knows; `thread` in [0, num_threads).
  AttentionCall call(int thread) const;

 private:
  void make_tasks(int rows_per_task);
  void deal_out();
  void deal_task(int task, double& done, double per_thread);
  void find_writers();
  void reserve_scratch(const KvLayout& layout);
  double partition_cost(const AttentionTask& task, int partition) const;
  double task_cost(const AttentionTask& task) const;

  AttentionStep step_{};
  AttentionShape shape_{};
  int num_threads_ = 0;
  std::vector<AttentionTask> tasks_;
  std::vector<AttentionFragment> fragments_;
  std::vector<int32_t> fragment_owner_;   // thread of each fragment, ascending
  std::vector<int32_t> fragment_begin_;   // [num_threads + 1]
  std::vector<int32_t> split_tasks_;
  std::vector<int32_t> writers_;          // [num_seqs, kv_heads]: the thread that writes the head's new tokens
  bool shares_new_tokens_ = false;
  mutable std::vector<float> scratch_, partials_;
  AttentionScratch scratch_layout_{};
  int64_t scratch_stride_ = 0;  // floats per thread
};

}  // namespace octavo
