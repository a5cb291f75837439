#include "runner/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace octavo {
namespace {

// A thread that keeps rows has at least so many: a linear kernel expands weights once per 32 rows.
constexpr int64_t kOwnedRows = 32;
constexpr int64_t kRowAlign = 16;  // floats: rows begin on cache lines

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("step: " + message);
}

enum ProfileKind { kRows, kLinears, kAttention, kSetup };

}  // namespace

Runner::Runner(PhaseList program, Isa isa, KvType kv_type, ThreadTeam& team)
    : program_(std::move(program)),
      isa_(isa),
      team_(team),
      kernels_(row_kernels(isa)),
      kv_shape_{program_.places_per_block(), program_.kv_place().kv_heads, program_.kv_place().head_dim, 0, kv_type},
      buffers_(program_.buffer_widths().size()),
      scratch_(team.size()),
      cosines_(program_.ropes().size()),
      sines_(program_.ropes().size()),
      slots_(program_.num_groups()),
      plans_(program_.plans().size()) {
  if (!isa_supported(isa)) throw std::invalid_argument(std::string("this machine does not support ") + isa_name(isa));
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

float* Runner::at(const View& view, int64_t row) const {
  if (view.buffer == kLogitsBuffer) return reinterpret_cast<float*>(logits_.data()) + row * program_.vocab_size();
  return reinterpret_cast<float*>(buffers_[view.buffer].data()) + row * stride(view) + view.offset;
}

int64_t Runner::stride(const View& view) const {
  return view.buffer == kLogitsBuffer ? program_.vocab_size()
                                      : round_up(program_.buffer_widths()[view.buffer], kRowAlign);
}

int64_t Runner::arena_bytes() const {
  int64_t total = static_cast<int64_t>(logits_.bytes());
  for (const MappedMemory& memory : buffers_) total += memory.bytes();
  for (const auto& memories : prepared_)
    for (const MappedMemory& memory : memories) total += memory.bytes();
  for (const MappedMemory& memory : scratch_) total += memory.bytes();
  return total;
}

// Buffers grow to the largest step seen; memory that a step does not touch is not committed.
void Runner::resize(const StepView& step) {
  if (step.num_logits > logits_capacity_) {
    logits_capacity_ = round_up(step.num_logits, 8);
    logits_ = MappedMemory(logits_capacity_ * program_.vocab_size() * sizeof(float));
  }
  if (step.num_tokens <= token_capacity_) return;
  token_capacity_ = round_up(step.num_tokens, 64);
  for (size_t i = 0; i < buffers_.size(); ++i)
    buffers_[i] = MappedMemory(token_capacity_ * round_up(program_.buffer_widths()[i], kRowAlign) * sizeof(float));
  for (int kind = 0; kind < kNumInputKinds; ++kind) {
    const int64_t k = program_.longest_input(static_cast<InputKind>(kind));
    prepared_[kind].resize(team_.size());
    for (MappedMemory& memory : prepared_[kind])
      if (k > 0) memory = MappedMemory(prepared_bytes(static_cast<InputKind>(kind), token_capacity_, k));
  }
  int64_t scratch = 0;
  for (const Phase& phase : program_.phases())
    if (const auto* linear = std::get_if<LinearPhase>(&phase))
      for (const LinearPart& part : linear->parts)
        scratch = std::max(scratch, scratch_bytes(isa_, *part.weight, token_capacity_));
  for (MappedMemory& memory : scratch_) memory = MappedMemory(scratch);
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
  resize(step);
  map_slots(step);
  build_plans(step);
  for (size_t rope = 0; rope < cosines_.size(); ++rope) {
    const size_t floats = step.num_tokens * program_.ropes()[rope].inv_freq.size();
    if (cosines_[rope].size() < floats) {
      cosines_[rope].resize(floats);
      sines_[rope].resize(floats);
    }
  }
  profile_[kSetup] += now_ns() - start;
  team_.run([&](int thread) { run_thread(step, thread); });
  return reinterpret_cast<float*>(logits_.data());
}

void Runner::run_thread(const StepView& step, int thread) {
  int64_t start = now_ns();
  const auto finish = [&](ProfileKind kind) {
    if (thread != 0) return;
    const int64_t now = now_ns();
    profile_[kind] += now - start;
    start = now;
  };
  fill_rotary(step, thread);
  team_.barrier();
  finish(kSetup);
  for (size_t i = 0; i < program_.phases().size(); ++i) {
    const Phase& phase = program_.phases()[i];
    ProfileKind kind = kAttention;
    if (const auto* rows = std::get_if<RowPhase>(&phase)) {
      run_rows(*rows, step, thread);
      kind = kRows;
    } else if (const auto* linear = std::get_if<LinearPhase>(&phase)) {
      if (rows_of(linear->domain, step) > 0) run_linear(*linear, step, thread);
      kind = kLinears;
    } else {
      run_attention(std::get<AttentionPhase>(phase), thread);
    }
    if (needs_barrier(i, step)) team_.barrier();
    finish(kind);
  }
}

// With enough rows each thread keeps its own through row phases and linears alike: what it reads it has written itself,
// and it waits for the others only around attention. With few rows linears are split by output columns instead.
bool Runner::owns_rows(Domain domain, const StepView& step) const {
  return rows_of(domain, step) >= kOwnedRows * team_.size();
}

Range Runner::my_rows(Domain domain, const StepView& step, int thread) const {
  return share(rows_of(domain, step), thread, team_.size(), owns_rows(domain, step) ? kOwnedRows : 1);
}

Runner::PreparedRows Runner::prepared_rows(Domain domain, const StepView& step, int thread) const {
  if (!owns_rows(domain, step)) return {0, rows_of(domain, step), 0};
  const Range mine = my_rows(domain, step, thread);
  return {mine.begin, mine.end - mine.begin, thread};
}

bool Runner::needs_barrier(size_t phase, const StepView& step) const {
  const auto domain_of = [](const Phase& p, Domain* domain) {
    if (const auto* rows = std::get_if<RowPhase>(&p)) return *domain = rows->domain, true;
    if (const auto* linear = std::get_if<LinearPhase>(&p)) return *domain = linear->domain, true;
    return false;
  };
  Domain mine, next;
  if (phase + 1 == program_.phases().size()) return false;  // the end of the region is one
  const auto* rows = std::get_if<RowPhase>(&program_.phases()[phase]);
  if (rows != nullptr && rows->closed) return true;
  return !domain_of(program_.phases()[phase], &mine) || !domain_of(program_.phases()[phase + 1], &next) ||
         mine != next || !owns_rows(mine, step);
}

void Runner::run_rows(const RowPhase& phase, const StepView& step, int thread) {
  const PreparedRows prepared = prepared_rows(phase.domain, step, thread);
  const Range mine = my_rows(phase.domain, step, thread);
  for (int64_t row = mine.begin; row < mine.end; ++row)
    for (const RowOp& op : phase.ops) run_row_op(op, step, row, prepared);
}

void Runner::run_row_op(const RowOp& op, const StepView& step, int64_t row, const PreparedRows& prepared) {
  struct Visitor {
    Runner& r;
    const StepView& step;
    int64_t row;
    const PreparedRows& prepared;

    void operator()(const EmbedRow& op) const {
      embed_row(*op.weight, step.token_ids[row], op.scale, r.at(op.out, row));
    }
    void operator()(const RmsNormRow& op) const {
      r.kernels_.rms_norm(r.at(op.x, row), op.weight->data(), op.eps, op.heads, op.x.width, r.at(op.out, row));
    }
    void operator()(const RopeRow& op) const {
      const int64_t half = static_cast<int64_t>(r.program_.ropes()[op.rope].inv_freq.size());
      r.kernels_.rope(r.at(op.x, row), op.heads, op.head_dim, half, &r.cosines_[op.rope][row * half],
                      &r.sines_[op.rope][row * half]);
    }
    void operator()(const WriteKvRow& op) const {
      const Slot slot = r.slots_[op.group][row];
      write_kv(*r.kv_, op.place, op.kv_heads, op.head_dim, r.at(op.k, row), r.at(op.v, row), slot.block,
               slot.offset);
    }
    void operator()(const GatedActivationRow& op) const {
      const auto kernel = op.activation == Activation::kSilu ? r.kernels_.silu_mul : r.kernels_.gelu_tanh_mul;
      kernel(r.at(op.gate, row), r.at(op.up, row), op.out.width, r.at(op.out, row));
    }
    void operator()(const AddRow& op) const {
      r.kernels_.add(r.at(op.a, row), r.at(op.b, row), op.out.width, r.at(op.out, row));
    }
    void operator()(const SelectRow& op) const {
      std::memcpy(r.at(op.out, row), r.at(op.x, step.logits_rows[row]), op.out.width * sizeof(float));
    }
    void operator()(const PrepareRow& op) const {
      prepare_row(r.isa_, op.kind, r.at(op.x, row), op.x.width, row - prepared.first, prepared.count,
                  r.prepared_[static_cast<int>(op.kind)][prepared.thread].data());
    }
  };
  std::visit(Visitor{*this, step, row, prepared}, op);
}

// The panels of all parts form one list, which the threads share unless each has its own rows.
void Runner::run_linear(const LinearPhase& phase, const StepView& step, int thread) {
  const PreparedRows rows = prepared_rows(phase.domain, step, thread);
  int64_t panels = 0;
  for (const LinearPart& part : phase.parts) panels += part.weight->panels();
  const Range mine = owns_rows(phase.domain, step) ? Range{0, panels} : share(panels, thread, team_.size());
  int64_t first = 0;
  for (const LinearPart& part : phase.parts) {
    const int64_t count = part.weight->panels();
    const int64_t begin = std::max(mine.begin - first, int64_t{0}), end = std::min(mine.end - first, count);
    first += count;
    if (begin >= end) continue;
    const InputKind kind = input_kind(part.weight->format());
    const View out{phase.out.buffer, part.column, part.weight->n(), phase.domain};
    linear(isa_, *part.weight, prepared_[static_cast<int>(kind)][rows.thread].data(), rows.count, at(out, rows.first), stride(out),
           phase.accumulate, begin, end, scratch_[thread].data());
  }
}

void Runner::run_attention(const AttentionPhase& phase, int thread) {
  const AttentionPlan& plan = plans_[phase.plan];
  attention_phase1(isa_, plan, *kv_, phase.place, at(phase.q, 0), stride(phase.q), at(phase.out, 0), stride(phase.out),
                   plan.shape().scale, thread);
  if (!plan.needs_merge()) return;
  team_.barrier();
  attention_phase2(isa_, plan, *kv_, phase.place, at(phase.q, 0), stride(phase.q), at(phase.out, 0), stride(phase.out),
                   plan.shape().scale, thread);
}

std::vector<std::pair<std::string, int64_t>> Runner::take_profile() {
  std::vector<std::pair<std::string, int64_t>> result{{"rows", profile_[kRows]},
                                                      {"linear", profile_[kLinears]},
                                                      {"attention", profile_[kAttention]},
                                                      {"setup", profile_[kSetup]}};
  profile_.fill(0);
  return result;
}

}  // namespace octavo
