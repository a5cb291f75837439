#include "runner/runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "runner/columns.h"
#include "runner/meetings.h"
#include "runner/pieces.h"
#include "runner/row_values.h"
#include "runner/segments.h"

namespace octavo {
namespace {

constexpr int64_t kRowAlign = 16;  // floats in a cache line

}  // namespace

Runner::Runner(PhaseList program, Isa isa, KvType kv_type, ThreadTeam& team)
    : program_(split_columns(separate_row_values(program))),
      isa_(isa),
      team_(team),
      kernels_(row_kernels(isa)),
      kv_writer_(kv_writer(isa)),
      kv_shape_{program_.places_per_block(), program_.kv_place().kv_heads, program_.kv_place().head_dim, 0, kv_type},
      values_(program_, team.size(), rows_at_work(isa, team.size())),
      prepared_(program_, team.size(), rows_at_work(isa, team.size()), least_own_rows(isa) * team.size()),
      scratch_(team.size()),
      cosines_(program_.ropes().size()),
      sines_(program_.ropes().size()),
      slots_(program_.num_groups()),
      plans_(program_.plans().size()),
      profile_(program_),
      work_{WorkShares(team.size()), WorkShares(team.size())} {
  if (!isa_supported(isa)) throw std::invalid_argument(std::string("this machine does not support ") + isa_name(isa));
  const auto* first = program_.phases().empty() ? nullptr : std::get_if<RowPhase>(&program_.phases().front());
  if (first == nullptr || !std::holds_alternative<EmbedRow>(first->ops.front()))
    throw std::invalid_argument("a program must begin with embed");
  reserve_scratch();
  find_next_weights();
  meetings_ = meetings(program_, meets_at_start_);
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

void Runner::reserve_scratch() {
  const int64_t rows = rows_at_work(isa_, team_.size());
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

// ---- setup: memory, slots, plans, rotary tables ----------------------------------------------------------------------

int64_t Runner::arena_bytes() const {
  int64_t total = values_.bytes() + prepared_.bytes();
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
        const int32_t block = table.data[seq * table.columns + position / block_size];
        slots[row] = {static_cast<int32_t>(seq), block, position % block_size};
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
  for (size_t rope = 0; rope < program_.ropes().size(); ++rope) {
    const RotaryTable& table = program_.ropes()[rope];
    const int64_t half = static_cast<int64_t>(table.inv_freq.size());
    const Range mine = share(step.num_tokens * half, thread, team_.size(), kRowAlign);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      const float angle = static_cast<float>(step.positions[i / half]) * table.inv_freq[i % half];
      cosines_[rope][i] = std::cos(angle) * table.attention_scaling;
      sines_[rope][i] = std::sin(angle) * table.attention_scaling;
    }
  }
}

// ---- the step --------------------------------------------------------------------------------------------------------

float* Runner::execute(const StepView& step) {
  const int64_t start = StepProfile::now();
  if (!kv_) throw std::logic_error("execute before reserve_kv");
  check_step(step, program_, kv_shape_.block_size, kv_->num_blocks());
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
  int turn = 0;
  deal_out(0, step, thread, work_[turn]);
  if (meets_at_start_ || !values_.repeats(Domain::kTokens)) team_.barrier(thread);
  profile_.count(StepProfile::kSetup, thread, start);
  for (size_t i = 0; i < program_.phases().size(); ++i) {
    const Phase& phase = program_.phases()[i];
    const Domain* const domain = domain_of(phase);
    int kind = profile_.kind_of(i);
    if (domain == nullptr) {
      run_attention(std::get<AttentionPhase>(phase), step, thread, work_[turn]);
    } else if (owns_rows(*domain, step)) {
      kind = StepProfile::kRows;
      i = run_own_rows(i, step, thread, work_[turn], start) - 1;
    } else {
      RowBlock block = all_rows(*domain, step, thread);
      if (const auto* row_phase = std::get_if<RowPhase>(&phase)) {
        if (!values_.repeats(*domain) || row_phase->joint) block.rows = share(block.rows.end, thread, team_.size());
        run_rows(*row_phase, step, block, thread, start);
      } else if (const auto& linear = std::get<LinearPhase>(phase); block.rows.end > 0) {
        run_columns(linear, block, thread, work_[turn], next_weights_[i][thread]);
      }
    }
    const bool meets = meets_after(i);
    if (detail_ || !meets) profile_.count(kind, thread, start);
    if (!meets) continue;
    turn ^= 1;
    deal_out(i + 1, step, thread, work_[turn]);
    team_.barrier(thread);
    profile_.count(detail_ ? StepProfile::kWaiting : kind, thread, start);
  }
}

// Whether the threads meet after a phase: always, but where they repeat its rows.
bool Runner::meets_after(size_t phase) const {
  const Domain* const domain = domain_of(program_.phases()[phase]);
  if (meetings_[phase] || !values_.repeats(domain == nullptr ? Domain::kTokens : *domain)) return true;
  const auto* attention = std::get_if<AttentionPhase>(&program_.phases()[phase + 1]);
  return attention != nullptr && plans_[attention->plan].shares_new_tokens();
}

// The rows of a domain as all threads see them while none keeps rows.
RowBlock Runner::all_rows(Domain domain, const StepView& step, int thread) const {
  const Range rows{0, rows_of(domain, step)};
  const bool repeats = values_.repeats(domain);
  return {rows, rows, repeats ? thread : 0, !repeats};
}

// With enough rows each thread keeps its own through row phases and linears alike: what it reads it has written itself,
// and it waits for the others only around attention. With few rows linears are split by output columns instead.
bool Runner::owns_rows(Domain domain, const StepView& step) const {
  return rows_of(domain, step) >= least_own_rows(isa_) * team_.size();
}

Range Runner::own_rows(Domain domain, const StepView& step, int thread) const {
  return share(rows_of(domain, step), thread, team_.size(), row_grain(isa_));
}

// Takes rows, a piece at a time, through all phases from `first` up to the next one that reads other rows: this thread's
// own, and then what is left of others'. Returns that phase.
size_t Runner::run_own_rows(size_t first, const StepView& step, int thread, WorkShares& work, int64_t& start) {
  const std::vector<Phase>& phases = program_.phases();
  const Domain domain = *domain_of(phases[first]);
  const size_t end = segment_end(phases, first);
  const Range own = own_rows(domain, step, thread);
  const int64_t most = piece_rows(own.end - own.begin, row_grain(isa_));
  for (Range rows; (rows = work.take(thread, most)).begin < rows.end;) {
    for (size_t i = first; i < end; ++i) {
      if (const auto* row_phase = std::get_if<RowPhase>(&phases[i])) {
        run_rows(*row_phase, step, {rows, rows, thread}, thread, start);
        profile_.count(StepProfile::kRows, thread, start);
      } else {
        const auto& linear = std::get<LinearPhase>(phases[i]);
        run_linear(linear, {rows, rows, thread}, {0, linear.panels()}, thread, nullptr);
        profile_.count(profile_.kind_of(i), thread, start);
      }
    }
  }
  return end;
}

void Runner::run_rows(const RowPhase& phase, const StepView& step, const RowBlock& block, int thread, int64_t& start) {
  if (detail_) {
    for (const RowOp& op : phase.ops) {
      for (int64_t row = block.rows.begin; row < block.rows.end; ++row) run_row_op(op, step, row, block, thread);
      profile_.count(StepProfile::kRowOps + static_cast<int>(op.index()), thread, start);
    }
    return;
  }
  for (int64_t row = block.rows.begin; row < block.rows.end; ++row)
    for (const RowOp& op : phase.ops) run_row_op(op, step, row, block, thread);
}

void Runner::run_row_op(const RowOp& op, const StepView& step, int64_t row, const RowBlock& block, int thread) {
  struct Visitor {
    Runner& r;
    const StepView& step;
    int64_t row;
    const RowBlock& block;
    int thread;

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
                      &r.sines_[op.rope][row * half], at(op.out));
    }
    void operator()(const WriteKvRow& op) const {
      const std::vector<Slot>& slots = r.slots_[op.group];
      const bool another = row + 1 < block.rows.end && slots[row + 1].sequence != slots[row].sequence;
      if (another) r.kv_writer_.fetch(r.kv_->layout(), r.place_to_write(op, row + 1, thread));
      const Range rows = group_to_write(slots, row, block.rows);
      if (rows.begin == rows.end) return;
      const KvRows from{r.values_.at(op.k, rows.begin, block), r.values_.at(op.v, rows.begin, block),
                        r.values_.stride(op.k), r.values_.stride(op.v)};
      r.kv_writer_.write(r.kv_->layout(), r.place_to_write(op, rows.begin, thread), rows.end - rows.begin, from);
    }
    void operator()(const GatedActivationRow& op) const {
      const auto kernel = op.activation == Activation::kSilu ? r.kernels_.silu_mul : r.kernels_.gelu_tanh_mul;
      kernel(at(op.gate), at(op.up), op.out.width, at(op.out));
    }
    void operator()(const AddRow& op) const {
      r.kernels_.add(at(op.a), at(op.b), op.out.width, at(op.out));
    }
    void operator()(const SelectRow& op) const {
      const float* x = r.values_.at(op.x, step.logits_rows[row], block);
      std::memcpy(at(op.out), x, op.out.width * sizeof(float));
    }
    void operator()(const PrepareRow& op) const {
      prepare_row(r.isa_, op.kind, at(op.x), op.x.width, row - block.at_work.begin,
                  block.at_work.end - block.at_work.begin, r.prepared_.at(op.kind, op.linear, block));
    }
  };
  std::visit(Visitor{*this, step, row, block, thread}, op);
}

// The rows whose K and V are written once `row` is there: itself, or those of a whole group with the last of them.
Range Runner::group_to_write(const std::vector<Slot>& slots, int64_t row, Range rows) {
  const int64_t first = row - slots[row].offset % kKvGroup, end = first + kKvGroup;
  if (first < rows.begin || end > rows.end || slots[first].block != slots[end - 1].block) return {row, row + 1};
  return row + 1 == end ? Range{first, end} : Range{row, row};
}

// Where a thread writes K and V of a row: all heads, or, of a row that all threads repeat, those that it reads later.
TokenPlace Runner::place_to_write(const WriteKvRow& op, int64_t row, int thread) const {
  const Slot slot = slots_[op.group][row];
  HeadRange heads{0, op.kv_heads};
  if (values_.repeats(Domain::kTokens))
    heads = op.plan < 0 ? HeadRange{0, thread == 0 ? op.kv_heads : 0} : plans_[op.plan].heads_to_write(thread, slot.sequence);
  return {kv_->start(op.place, slot.block), heads, op.head_dim, slot.offset};
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
    linear(isa_, part.kind, *part.weight, prepared_.at(part.kind, phase.number, block), rows,
           values_.at(out, block.at_work.begin, block), values_.stride(out), phase.accumulate, begin, end,
           scratch_[thread].data(), panels.end > first ? phase.panel(first) : next);
  }
}

// A thread's columns of all rows. Where threads do not repeat these, who is done takes over from others.
void Runner::run_columns(const LinearPhase& phase, const RowBlock& block, int thread, WorkShares& work, const uint8_t* next) {
  const Range own = share(phase.panels(), thread, team_.size());
  if (values_.repeats(phase.out.domain)) return run_linear(phase, block, own, thread, next);
  const int64_t rows = block.at_work.end - block.at_work.begin, k = phase.parts.front().weight->k();
  const int64_t most = std::max<int64_t>(1, piece_products(isa_) / (rows * k * kPanel));
  for (Range piece; (piece = work.take(thread, most, kWorthPieces * most)).begin < piece.end;) {
    const bool goes_on = piece.begin >= own.begin && piece.end < own.end;
    run_linear(phase, block, piece, thread, goes_on ? phase.panel(piece.end) : next);
  }
}

// This thread's share of a phase, where threads that are done take over from others: attention, own rows, and columns of
// shared rows.
void Runner::deal_out(size_t index, const StepView& step, int thread, WorkShares& work) const {
  if (index >= program_.phases().size()) return;
  const Phase& phase = program_.phases()[index];
  const Domain* const domain = domain_of(phase);
  if (domain == nullptr) return work.deal(thread, plans_[std::get<AttentionPhase>(phase).plan].fragments(thread));
  if (owns_rows(*domain, step)) {
    work.deal(thread, own_rows(*domain, step, thread));
  } else if (const auto* linear = std::get_if<LinearPhase>(&phase)) {
    work.deal(thread, share(linear->panels(), thread, team_.size()));
  }
}

void Runner::run_attention(const AttentionPhase& phase, const StepView& step, int thread, WorkShares& work) {
  const AttentionPlan& plan = plans_[phase.plan];
  const RowBlock block = all_rows(Domain::kTokens, step, thread);
  const float* q = values_.at(phase.q, 0, block);
  float* out = values_.at(phase.out, 0, block);
  const int64_t q_stride = values_.stride(phase.q), out_stride = values_.stride(phase.out);
  const float scale = plan.shape().scale;
  const auto attend = [&](Range fragments) {
    attention_phase1(isa_, plan, *kv_, phase.place, q, q_stride, out, out_stride, scale, thread, fragments);
  };
  const Range own = plan.fragments(thread);
  if (values_.repeats(Domain::kTokens)) {
    attend(own);
  } else {
    const bool owns = owns_rows(Domain::kTokens, step);
    const int64_t pieces = owns ? kOwnAttentionPieces : kSharedAttentionPieces;
    const int64_t most = std::max<int64_t>(1, (own.end - own.begin) / pieces);
    for (Range piece; (piece = work.take(thread, most, owns ? 1 : most)).begin < piece.end;) attend(piece);
  }
  if (!plan.needs_merge()) return;
  team_.barrier(thread);
  attention_phase2(isa_, plan, *kv_, phase.place, q, q_stride, out, out_stride, scale, thread);
}

std::vector<std::pair<std::string, bool>> Runner::few_row_meetings() const {
  std::vector<std::pair<std::string, bool>> result;
  for (size_t i = 0; i < meetings_.size(); ++i) result.emplace_back(phase_name(program_.phases()[i]), meetings_[i]);
  return result;
}

}  // namespace octavo
