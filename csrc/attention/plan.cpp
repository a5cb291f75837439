#include "attention/plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr int64_t kAlign = 16;  // floats per cache line

// Costs in units of about 40 ns. Reading a tile of keys and values costs as much as some sixteen rows of arithmetic.
constexpr double kTileCost = 8.0, kRowTileCost = 0.5, kPartitionCost = 6.0;
// A task that straddles two threads' shares is split only where it is more than this part of a share.
constexpr double kSplitThreshold = 1.0 / 12;
constexpr int kTasksPerThread = 4;

int64_t align_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Positions [begin, end) that at least one row of a task sees.
struct Span {
  int begin, end;
};

Span task_span(const AttentionStep& step, const AttentionShape& shape, const AttentionTask& task) {
  const int group = shape.heads / shape.kv_heads;
  const int tokens = step.query_start_loc[task.seq + 1] - step.query_start_loc[task.seq];
  const int first_position = step.seq_lens[task.seq] - tokens + task.first_row / group;
  const int last_position = step.seq_lens[task.seq] - tokens + (task.first_row + task.num_rows - 1) / group;
  return {shape.window > 0 ? std::max(0, first_position - shape.window + 1) : 0, last_position + 1};
}

}  // namespace

void AttentionPlan::build(const AttentionStep& step, const AttentionShape& shape, const KvLayout& layout,
                          int num_threads) {
  if (shape.kv_heads < 1 || shape.heads < 1 || shape.heads % shape.kv_heads != 0)
    throw std::invalid_argument("heads is " + std::to_string(shape.heads) + ", must be a multiple of kv_heads, " +
                                std::to_string(shape.kv_heads));
  if (shape.head_dim < 1 || shape.head_dim > 512 || num_threads < 1 || shape.window < 0)
    throw std::invalid_argument("head_dim must be between 1 and 512, threads at least 1, window at least 0");
  step_ = step;
  shape_ = shape;
  num_threads_ = num_threads;
  int rows = kTaskRows;
  make_tasks(rows);
  // Smaller tasks where there are too few to balance; the rows of a tile stay together.
  while (rows > kTileRows && static_cast<int>(tasks_.size()) < kTasksPerThread * num_threads) make_tasks(rows /= 2);
  deal_out();
  find_writers();
  reserve_scratch(layout);
}

void AttentionPlan::make_tasks(int rows_per_task) {
  tasks_.clear();
  const int group = shape_.heads / shape_.kv_heads;
  for (int seq = 0; seq < step_.num_seqs; ++seq) {
    const int rows = (step_.query_start_loc[seq + 1] - step_.query_start_loc[seq]) * group;
    for (int head = 0; head < shape_.kv_heads; ++head) {
      for (int first = 0; first < rows; first += rows_per_task) {
        AttentionTask task{seq, head, first, std::min(rows_per_task, rows - first), 0, 0, -1};
        const Span span = task_span(step_, shape_, task);
        task.first_partition = span.begin / kPartition;
        task.num_partitions = (span.end - 1) / kPartition + 1 - task.first_partition;
        tasks_.push_back(task);
      }
    }
  }
}

double AttentionPlan::partition_cost(const AttentionTask& task, int partition) const {
  const Span span = task_span(step_, shape_, task);
  const int begin = std::max(span.begin, partition * kPartition);
  const int end = std::min(span.end, (partition + 1) * kPartition);
  const double tiles = (end - 1) / kKvTile - begin / kKvTile + 1;
  return kPartitionCost + tiles * (kTileCost + kRowTileCost * task.num_rows);
}

double AttentionPlan::task_cost(const AttentionTask& task) const {
  // All partitions but the first and the last are whole, so they cost the same.
  double cost = partition_cost(task, task.first_partition);
  if (task.num_partitions > 1) cost += partition_cost(task, task.first_partition + task.num_partitions - 1);
  if (task.num_partitions > 2) cost += (task.num_partitions - 2) * partition_cost(task, task.first_partition + 1);
  return cost;
}

void AttentionPlan::deal_out() {
  fragments_.clear();
  fragment_owner_.clear();
  split_tasks_.clear();
  double total = 0;
  for (const AttentionTask& task : tasks_) total += task_cost(task);
  double done = 0;
  for (int task = 0; task < static_cast<int>(tasks_.size()); ++task) deal_task(task, done, total / num_threads_);
  fragment_begin_.assign(num_threads_ + 1, static_cast<int32_t>(fragments_.size()));
  for (int f = static_cast<int>(fragments_.size()) - 1; f >= 0; --f)
    for (int thread = fragment_owner_[f]; thread >= 0 && fragment_begin_[thread] > f; --thread)
      fragment_begin_[thread] = f;
}

// Each piece goes to the thread in whose share its middle lies.
void AttentionPlan::deal_task(int index, double& done, double per_thread) {
  const AttentionTask& task = tasks_[index];
  const double cost = task_cost(task);
  const int end = task.first_partition + task.num_partitions;
  const auto owner = [&](double middle) { return std::min(num_threads_ - 1, static_cast<int>(middle / per_thread)); };
  if (task.num_partitions == 1 || num_threads_ == 1 || cost < kSplitThreshold * per_thread) {
    fragments_.push_back({index, task.first_partition, end});
    fragment_owner_.push_back(owner(done + cost / 2));
    done += cost;
    return;
  }
  const size_t first_fragment = fragments_.size();
  for (int partition = task.first_partition; partition < end; ++partition) {
    const double part = partition_cost(task, partition);
    const int thread = owner(done + part / 2);
    if (fragments_.size() > first_fragment && fragment_owner_.back() == thread) {
      fragments_.back().end_partition = partition + 1;
    } else {
      fragments_.push_back({index, partition, partition + 1});
      fragment_owner_.push_back(thread);
    }
    done += part;
  }
  if (fragments_.size() > first_fragment + 1) split_tasks_.push_back(index);
}

// New tokens are the last ones of a sequence, so the thread that does the last piece of a head reads them.
void AttentionPlan::find_writers() {
  writers_.assign(static_cast<size_t>(step_.num_seqs) * shape_.kv_heads, 0);
  const auto writer = [this](const AttentionFragment& fragment) -> int32_t& {
    const AttentionTask& task = tasks_[fragment.task];
    return writers_[static_cast<size_t>(task.seq) * shape_.kv_heads + task.kv_head];
  };
  for (size_t f = 0; f < fragments_.size(); ++f) writer(fragments_[f]) = fragment_owner_[f];
  shares_new_tokens_ = false;
  for (size_t f = 0; f < fragments_.size() && !shares_new_tokens_; ++f) {
    const int seq = tasks_[fragments_[f].task].seq;
    const int first_new = step_.seq_lens[seq] - (step_.query_start_loc[seq + 1] - step_.query_start_loc[seq]);
    const bool reads_new = fragments_[f].end_partition > first_new / kPartition;
    shares_new_tokens_ = reads_new && fragment_owner_[f] != writer(fragments_[f]);
  }
}

HeadRange AttentionPlan::heads_to_write(int thread, int seq) const {
  const auto begin = writers_.begin() + static_cast<ptrdiff_t>(seq) * shape_.kv_heads, end = begin + shape_.kv_heads;
  const auto mine = std::equal_range(begin, end, thread);  // owners ascend
  return {static_cast<int>(mine.first - begin), static_cast<int>(mine.second - begin)};
}

void AttentionPlan::reserve_scratch(const KvLayout& layout) {
  const int64_t dim = padded_head_dim(shape_.head_dim);
  const int64_t gathered = layout.unit == kKvTile ? 0 : kPartition * dim;
  AttentionScratch& s = scratch_layout_;
  int64_t next = 0;
  const auto take = [&next](int64_t floats) {
    const int64_t at = next;
    next += align_up(floats, kAlign);
    return at;
  };
  s.q = take(kTaskRows * dim);
  s.state = take(kTaskRows * dim);
  s.max = take(kTaskRows);
  s.sum = take(kTaskRows);
  s.scores = take(kTileRows * kScoreStride);
  s.partial = take(kTileRows * dim);
  s.k = take(gathered);
  s.v = take(gathered);
  s.total = next;
  scratch_stride_ = next + kAlign;
  const size_t needed = static_cast<size_t>(scratch_stride_ * num_threads_ + kAlign);
  if (scratch_.size() < needed) scratch_.resize(needed);

  int64_t partials = 0;
  for (int32_t index : split_tasks_) {
    AttentionTask& task = tasks_[index];
    task.partial = partials;
    partials += align_up(int64_t{task.num_partitions} * task.num_rows * (dim + 2), kAlign);
  }
  const size_t needed_partials = static_cast<size_t>(partials + 2 * kAlign);  // merges read whole vectors
  if (partials > 0 && partials_.size() < needed_partials) partials_.resize(needed_partials);
}

AttentionCall AttentionPlan::call(int thread) const {
  const auto aligned = [](float* p) {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + 63) / 64 * 64);
  };
  AttentionCall call{};
  call.query_start_loc = step_.query_start_loc;
  call.seq_lens = step_.seq_lens;
  call.block_table = step_.block_table;
  call.table_stride = step_.table_stride;
  call.window = shape_.window;
  call.heads = shape_.heads;
  call.kv_heads = shape_.kv_heads;
  call.group = shape_.heads / shape_.kv_heads;
  call.head_dim = shape_.head_dim;
  call.padded_dim = padded_head_dim(shape_.head_dim);
  call.tasks = tasks_.data();
  call.fragments = fragments_.data();
  call.split_tasks = split_tasks_.data();
  call.num_split_tasks = static_cast<int32_t>(split_tasks_.size());
  call.thread = thread;
  call.num_threads = num_threads_;
  call.partials = aligned(partials_.data());
  call.scratch = aligned(scratch_.data()) + thread * scratch_stride_;
  call.layout = scratch_layout_;
  return call;
}

}  // namespace octavo
