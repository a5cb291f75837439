#include "runner/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "runner/segments.h"

namespace octavo {
namespace {

// A thread that keeps rows has at least so many: a linear kernel expands weights once per 32 rows.
constexpr int64_t kOwnedRows = 32;
constexpr int64_t kCachedRows = 64;  // whose values between two attentions stay in a core's own cache

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("step: " + message);
}

// A linear reads at most so many rows at once, however many a step has: a cacheful of a thread's own, or, where threads
// do not keep rows, all of them.
int64_t rows_at_work(const ThreadTeam& team) { return std::max(kCachedRows, kOwnedRows * team.size()); }

// Names of profile_names_ that every program has; then come the row operations in RowOp's order, then linears.
enum ProfileKind { kSetup, kRows, kAttention, kWaiting, kRowOps };
constexpr const char* kProfileNames[] = {"setup",    "rows",             "attention", "waiting",     "embed",  "rms_norm", "rope",
                                         "write_kv", "gated_activation", "add",       "select_rows", "prepare"};
static_assert(std::size(kProfileNames) == kRowOps + std::variant_size_v<RowOp>);

}  // namespace

Runner::Runner(PhaseList program, Isa isa, KvType kv_type, ThreadTeam& team)
    : program_(std::move(program)),
      isa_(isa),
      team_(team),
      kernels_(row_kernels(isa)),
      kv_shape_{program_.places_per_block(), program_.kv_place().kv_heads, program_.kv_place().head_dim, 0, kv_type},
      values_(program_, team.size(), rows_at_work(team)),
      scratch_(team.size()),
      cosines_(program_.ropes().size()),
      sines_(program_.ropes().size()),
      slots_(program_.num_groups()),
      plans_(program_.plans().size()) {
  if (!isa_supported(isa)) throw std::invalid_argument(std::string("this machine does not support ") + isa_name(isa));
  const auto* first = program_.phases().empty() ? nullptr : std::get_if<RowPhase>(&program_.phases().front());
  if (first == nullptr || !std::holds_alternative<EmbedRow>(first->ops.front()))
    throw std::invalid_argument("a program must begin with embed");
  reserve_linear_memory();
  name_profile();
  find_next_weights();
}

// Where each thread reads weights after its columns of a linear: in the next one, or after the last in the first, for there
// will be another step.
void Runner::find_next_weights() {
  const std::vector<Phase>& phases = program_.phases();
  next_weights_.assign(phases.size(), std::vector<const uint8_t*>(team_.size()));
  std::vector<const uint8_t*> next(team_.size());
  for (size_t i = 2 * phases.size(); i-- > 0;) {
    const auto* linear = std::get_if<LinearPhase>(&phases[i % phases.size()]);
    if (linear == nullptr) continue;
    next_weights_[i % phases.size()] = next;
    for (int thread = 0; thread < team_.size(); ++thread)
      next[thread] = linear->panel(share(linear->panels(), thread, team_.size()).begin);
  }
}

void Runner::name_profile() {
  profile_names_.assign(std::begin(kProfileNames), std::end(kProfileNames));
  for (const Phase& phase : program_.phases()) {
    const std::string name = phase_name(phase);
    const auto found = std::find(profile_names_.begin(), profile_names_.end(), name);
    profile_kinds_.push_back(static_cast<int>(found - profile_names_.begin()));
    if (found == profile_names_.end()) profile_names_.push_back(name);
  }
  profile_.assign(profile_names_.size(), 0);
}

void Runner::reserve_linear_memory() {
  const int64_t rows = rows_at_work(team_);
  for (int kind = 0; kind < kNumInputKinds; ++kind) {
    const int64_t k = program_.longest_input(static_cast<InputKind>(kind));
    for (int thread = 0; k > 0 && thread < team_.size(); ++thread)
      prepared_[kind].emplace_back(prepared_bytes(static_cast<InputKind>(kind), rows, k));
  }
  int64_t scratch = 0;
  for (const Phase& phase : program_.phases())
    if (const auto* linear = std::get_if<LinearPhase>(&phase))
      for (const LinearPart& part : linear->parts)
        scratch = std::max(scratch, scratch_bytes(isa_, part.kind, rows));
  for (MappedMemory& memory : scratch_) memory = MappedMemory(scratch);
}

int64_t Runner::block_bytes(int block_size) const {
  KvShape shape = kv_shape_;
  shape.block_size = block_size;
  return make_layout(shape).block_bytes;
}

void Runner::reserve_kv(int64_t num_blocks, int block_size) {
  kv_shape_.block_size = block_size;
  kv_ = std::make_unique<KvCache>(kv_shape_, num_blocks);
}

void Runner::commit_blocks(int64_t first, int64_t count) {
  if (!kv_) throw std::logic_error("commit_blocks before reserve_kv");
  kv_->commit(first, count);
}

void Runner::release_blocks(int64_t first, int64_t count) {
  if (!kv_) throw std::logic_error("release_blocks before reserve_kv");
  kv_->release(first, count);
}

// ---- checks: a bad step must not reach a kernel ----------------------------------------------------------------------

void Runner::check_sequence(const StepView& step, int64_t seq) const {
  const int64_t begin = step.query_start_loc[seq], end = step.query_start_loc[seq + 1];
  const int64_t length = step.seq_lens[seq], first = length - (end - begin);
  require(begin < end && end <= step.num_tokens, "query_start_loc is not ascending within num_tokens");
  require(first >= 0, "seq_lens is shorter than the sequence's new tokens");
  for (int64_t row = begin; row < end; ++row)
    require(step.positions[row] == first + (row - begin), "positions are not the last ones of the sequence");
  for (const PlanShape& plan : program_.plans()) {
    const StepView::Table& table = step.block_tables[plan.group];
    const int64_t seen = plan.window > 0 ? std::max<int64_t>(0, first - plan.window + 1) : 0;
    const int64_t last = (length - 1) / kv_shape_.block_size;
    require(last < table.columns, "a block table is shorter than its sequence");
    for (int64_t block = seen / kv_shape_.block_size; block <= last; ++block) {
      const int32_t id = table.data[seq * table.columns + block];
      require(id >= 0 && id < kv_->num_blocks(), "block id " + std::to_string(id) + " is not in the KV memory");
    }
  }
}

void Runner::check(const StepView& step) const {
  require(kv_ != nullptr, "reserve_kv has not been called");
  require(step.num_tokens > 0 && step.num_seqs > 0, "is empty");
  require(step.block_tables.size() == static_cast<size_t>(program_.num_groups()), "one block table per KV group wanted");
  require(step.query_start_loc[0] == 0 && step.query_start_loc[step.num_seqs] == step.num_tokens,
          "query_start_loc does not cover the tokens");
  for (int64_t seq = 0; seq < step.num_seqs; ++seq) check_sequence(step, seq);
  const auto* embed = std::get_if<EmbedRow>(&std::get<RowPhase>(program_.phases().front()).ops.front());
  for (int64_t row = 0; row < step.num_tokens; ++row)
    require(step.token_ids[row] >= 0 && step.token_ids[row] < embed->weight->n(),
            "token id " + std::to_string(step.token_ids[row]) + " is outside the vocabulary");
  for (int64_t i = 0; i < step.num_logits; ++i)
    require(step.logits_rows[i] >= 0 && step.logits_rows[i] < step.num_tokens, "logits_rows names no row");
  require(step.num_logits <= step.num_tokens, "logits_rows has more rows than the step");
  for (int64_t i = 0; i < 2 * step.num_copies; ++i)
    require(step.copies[i] >= 0 && step.copies[i] < kv_->num_blocks(), "copies names no block");
}

// ---- setup: memory, slots, plans, rotary tables ----------------------------------------------------------------------

int64_t Runner::arena_bytes() const {
  int64_t total = values_.bytes();
  for (const auto& memories : prepared_)
    for (const MappedMemory& memory : memories) total += memory.bytes();
  for (const MappedMemory& memory : scratch_) total += memory.bytes();
  return total;
}

void Runner::map_slots(const StepView& step) {
  const int32_t block_size = kv_shape_.block_size;
  for (size_t group = 0; group < slots_.size(); ++group) {
    std::vector<Slot>& slots = slots_[group];
    const StepView::Table& table = step.block_tables[group];
    slots.resize(step.num_tokens);
    for (int64_t seq = 0; seq < step.num_seqs; ++seq)
      for (int64_t row = step.query_start_loc[seq]; row < step.query_start_loc[seq + 1]; ++row) {
        const int32_t position = step.positions[row];
        slots[row] = {table.data[seq * table.columns + position / block_size], position % block_size};
      }
  }
}

void Runner::build_plans(const StepView& step) {
  for (size_t i = 0; i < plans_.size(); ++i) {
    const PlanShape& shape = program_.plans()[i];
    const StepView::Table& table = step.block_tables[shape.group];
    plans_[i].build(AttentionStep{static_cast<int>(step.num_seqs), step.query_start_loc, step.seq_lens, table.data,
                                  table.columns},
                    AttentionShape{shape.heads, shape.kv_heads, shape.head_dim, shape.scale, shape.window},
                    kv_->layout(), team_.size());
  }
}

// The angle is a float32 product, as the model's own code computes it; its cosine is then exact to float32.
void Runner::fill_rotary(const StepView& step, int thread) {
  const Range rows = share(step.num_tokens, thread, team_.size());
  for (size_t rope = 0; rope < program_.ropes().size(); ++rope) {
    const RotaryTable& table = program_.ropes()[rope];
    const int64_t half = static_cast<int64_t>(table.inv_freq.size());
    for (int64_t row = rows.begin; row < rows.end; ++row)
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(step.positions[row]) * table.inv_freq[i];
        cosines_[rope][row * half + i] = std::cos(angle) * table.attention_scaling;
        sines_[rope][row * half + i] = std::sin(angle) * table.attention_scaling;
      }
  }
}

// ---- the step --------------------------------------------------------------------------------------------------------

float* Runner::execute(const StepView& step) {
  const int64_t start = now_ns();
  check(step);
  for (int64_t i = 0; i < step.num_copies; ++i) kv_->copy_block(step.copies[2 * i], step.copies[2 * i + 1]);
  values_.resize(step.num_tokens, step.num_logits);
  map_slots(step);
  build_plans(step);
  for (size_t rope = 0; rope < cosines_.size(); ++rope) {
    const size_t floats = step.num_tokens * program_.ropes()[rope].inv_freq.size();
    if (cosines_[rope].size() < floats) {
      cosines_[rope].resize(floats);
      sines_[rope].resize(floats);
    }
  }
  team_.run([&](int thread) { run_thread(step, thread, start); });
  return values_.logits();
}

// `start` is when the step began: to wake the other threads counts as setup.
void Runner::run_thread(const StepView& step, int thread, int64_t start) {
  fill_rotary(step, thread);
  team_.barrier();
  count_time(kSetup, thread, start);
  for (size_t i = 0; i < program_.phases().size();) {
    const Phase& phase = program_.phases()[i];
    const Domain* const domain = domain_of(phase);
    int kind = profile_kinds_[i];
    if (domain == nullptr) {
      run_attention(std::get<AttentionPhase>(phase), thread);
      ++i;
    } else if (owns_rows(*domain, step)) {
      kind = kRows;
      i = run_own_rows(i, step, thread, start);
    } else {
      const int64_t rows = rows_of(*domain, step);
      const RowBlock block{share(rows, thread, team_.size()), {0, rows}, 0};
      if (const auto* row_phase = std::get_if<RowPhase>(&phase)) {
        run_rows(*row_phase, step, block, thread, start);
      } else if (const auto& linear = std::get<LinearPhase>(phase); rows > 0) {
        run_linear(linear, block, share(linear.panels(), thread, team_.size()), thread, next_weights_[i][thread]);
      }
      ++i;
    }
    if (detail_) count_time(std::exchange(kind, kWaiting), thread, start);
    team_.barrier();
    count_time(kind, thread, start);
  }
}

void Runner::count_time(int kind, int thread, int64_t& start) {
  if (thread != 0) return;
  const int64_t now = now_ns();
  profile_[kind] += now - std::exchange(start, now);
}

// With enough rows each thread keeps its own through row phases and linears alike: what it reads it has written itself,
// and it waits for the others only around attention. With few rows linears are split by output columns instead.
bool Runner::owns_rows(Domain domain, const StepView& step) const {
  return rows_of(domain, step) >= kOwnedRows * team_.size();
}

// Takes this thread's rows, a cacheful at a time, through all phases from `first` up to the next one that reads other
// rows. Returns that one.
size_t Runner::run_own_rows(size_t first, const StepView& step, int thread, int64_t& start) {
  const std::vector<Phase>& phases = program_.phases();
  const Domain domain = *domain_of(phases[first]);
  const size_t end = segment_end(phases, first);
  const Range mine = share(rows_of(domain, step), thread, team_.size(), kOwnedRows);
  for (int64_t begin = mine.begin; begin < mine.end; begin += kCachedRows) {
    const Range rows{begin, std::min(begin + kCachedRows, mine.end)};
    for (size_t i = first; i < end; ++i) {
      if (const auto* row_phase = std::get_if<RowPhase>(&phases[i])) {
        run_rows(*row_phase, step, {rows, rows, thread}, thread, start);
        count_time(kRows, thread, start);
      } else {
        const auto& linear = std::get<LinearPhase>(phases[i]);
        run_linear(linear, {rows, rows, thread}, {0, linear.panels()}, thread, nullptr);
        count_time(profile_kinds_[i], thread, start);
      }
    }
  }
  return end;
}

void Runner::run_rows(const RowPhase& phase, const StepView& step, const RowBlock& block, int thread, int64_t& start) {
  if (detail_) {
    for (const RowOp& op : phase.ops) {
      for (int64_t row = block.rows.begin; row < block.rows.end; ++row) run_row_op(op, step, row, block);
      count_time(kRowOps + static_cast<int>(op.index()), thread, start);
    }
    return;
  }
  for (int64_t row = block.rows.begin; row < block.rows.end; ++row)
    for (const RowOp& op : phase.ops) run_row_op(op, step, row, block);
}

void Runner::run_row_op(const RowOp& op, const StepView& step, int64_t row, const RowBlock& block) {
  struct Visitor {
    Runner& r;
    const StepView& step;
    int64_t row;
    const RowBlock& block;

    float* at(const View& view) const { return r.values_.at(view, row, block); }

    void operator()(const EmbedRow& op) const {
      embed_row(*op.weight, step.token_ids[row], op.scale, at(op.out));
    }
    void operator()(const RmsNormRow& op) const {
      r.kernels_.rms_norm(at(op.x), op.weight->data(), op.eps, op.heads, op.x.width, at(op.out));
    }
    void operator()(const RopeRow& op) const {
      const int64_t half = static_cast<int64_t>(r.program_.ropes()[op.rope].inv_freq.size());
      r.kernels_.rope(at(op.x), op.heads, op.head_dim, half, &r.cosines_[op.rope][row * half],
                      &r.sines_[op.rope][row * half]);
    }
    void operator()(const WriteKvRow& op) const {
      const Slot slot = r.slots_[op.group][row];
      write_kv(*r.kv_, op.place, op.kv_heads, op.head_dim, at(op.k), at(op.v), slot.block, slot.offset);
    }
    void operator()(const GatedActivationRow& op) const {
      const auto kernel = op.activation == Activation::kSilu ? r.kernels_.silu_mul : r.kernels_.gelu_tanh_mul;
      kernel(at(op.gate), at(op.up), op.out.width, at(op.out));
    }
    void operator()(const AddRow& op) const {
      r.kernels_.add(at(op.a), at(op.b), op.out.width, at(op.out));
    }
    void operator()(const SelectRow& op) const {
      const float* x = r.values_.all_rows(op.x) + step.logits_rows[row] * r.values_.stride(op.x);
      std::memcpy(at(op.out), x, op.out.width * sizeof(float));
    }
    void operator()(const PrepareRow& op) const {
      prepare_row(r.isa_, op.kind, at(op.x), op.x.width, row - block.at_work.begin,
                  block.at_work.end - block.at_work.begin, r.prepared_[static_cast<int>(op.kind)][block.memory].data());
    }
  };
  std::visit(Visitor{*this, step, row, block}, op);
}

// The panels of all parts form one list, of which `panels` are to be done.
void Runner::run_linear(const LinearPhase& phase, const RowBlock& block, Range panels, int thread, const uint8_t* next) {
  const int64_t rows = block.at_work.end - block.at_work.begin;
  int64_t first = 0;
  for (const LinearPart& part : phase.parts) {
    const int64_t count = part.weight->panels();
    const int64_t begin = std::max(panels.begin - first, int64_t{0}), end = std::min(panels.end - first, count);
    first += count;
    if (begin >= end) continue;
    const View out{phase.out.buffer, part.column, part.weight->n(), phase.domain};
    linear(isa_, part.kind, *part.weight, prepared_[static_cast<int>(part.kind)][block.memory].data(), rows,
           values_.at(out, block.at_work.begin, block), values_.stride(out), phase.accumulate, begin, end,
           scratch_[thread].data(), panels.end > first ? phase.panel(first) : next);
  }
}

void Runner::run_attention(const AttentionPhase& phase, int thread) {
  const AttentionPlan& plan = plans_[phase.plan];
  const float* q = values_.all_rows(phase.q);
  float* out = values_.all_rows(phase.out);
  const int64_t q_stride = values_.stride(phase.q), out_stride = values_.stride(phase.out);
  const float scale = plan.shape().scale;
  attention_phase1(isa_, plan, *kv_, phase.place, q, q_stride, out, out_stride, scale, thread);
  if (!plan.needs_merge()) return;
  team_.barrier();
  attention_phase2(isa_, plan, *kv_, phase.place, q, q_stride, out, out_stride, scale, thread);
}

std::vector<std::pair<std::string, int64_t>> Runner::take_profile() {
  std::vector<std::pair<std::string, int64_t>> result;
  for (size_t i = 0; i < profile_.size(); ++i) result.emplace_back(profile_names_[i], std::exchange(profile_[i], 0));
  return result;
}

}  // namespace octavo
