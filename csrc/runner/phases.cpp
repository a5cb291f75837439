#include "runner/phases.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// Whether more operations may be fused into a phase: none behind a writing of K and V, which may wait for later rows and
// must find them as they are.
bool takes_more(const RowPhase& phase) {
  return !phase.closed && !std::holds_alternative<WriteKvRow>(phase.ops.back());
}

}  // namespace

int64_t LinearPhase::panels() const {
  int64_t count = 0;
  for (const LinearPart& part : parts) count += part.weight->panels();
  return count;
}

const uint8_t* LinearPhase::panel(int64_t index) const {
  for (const LinearPart& part : parts) {
    if (index < part.weight->panels()) return part.weight->panel(index);
    index -= part.weight->panels();
  }
  return nullptr;
}

std::string phase_name(const Phase& phase) {
  if (std::holds_alternative<RowPhase>(phase)) return "rows";
  if (std::holds_alternative<AttentionPhase>(phase)) return "attention";
  const auto& linear = std::get<LinearPhase>(phase);
  if (linear.out.buffer == kLogitsBuffer) return "logits";
  return "linear " + std::to_string(linear.parts.front().weight->k()) + "x" + std::to_string(linear.out.width);
}

PhaseList::PhaseList(std::vector<int64_t> buffer_widths, std::vector<RotaryTable> ropes, int num_groups,
                     int places_per_block, int64_t vocab_size)
    : buffer_widths_(std::move(buffer_widths)),
      ropes_(std::move(ropes)),
      num_groups_(num_groups),
      places_per_block_(places_per_block),
      vocab_size_(vocab_size) {}

Domain PhaseList::check(const View& view, const char* name) const {
  require(view.buffer >= 0 && view.buffer < static_cast<int>(buffer_widths_.size()),
          std::string(name) + ": no such buffer");
  require(view.offset >= 0 && view.width > 0 && view.offset + view.width <= buffer_widths_[view.buffer],
          std::string(name) + ": columns outside its buffer");
  return view.domain;
}

void PhaseList::append_row_op(Domain domain, RowOp op) {
  auto* last = phases_.empty() ? nullptr : std::get_if<RowPhase>(&phases_.back());
  if (last == nullptr || last->domain != domain || !takes_more(*last)) {
    phases_.emplace_back(RowPhase{domain, {}});
    last = &std::get<RowPhase>(phases_.back());
  }
  last->ops.push_back(std::move(op));
}

void PhaseList::add_embed(View out, WeightPtr weight, float scale) {
  const Domain domain = check(out, "embed out");
  require(weight->k() == out.width, "embed: weight width differs from out");
  append_row_op(domain, EmbedRow{out, std::move(weight), scale});
}

void PhaseList::add_rms_norm(View out, View x, VectorPtr weight, float eps, int64_t heads) {
  const Domain domain = check(out, "rms_norm out");
  require(check(x, "rms_norm x") == domain && x.width == out.width, "rms_norm: x and out differ in shape");
  require(heads > 0 && x.width % heads == 0 && static_cast<int64_t>(weight->size()) * heads == x.width,
          "rms_norm: weight does not fit the heads");
  append_row_op(domain, RmsNormRow{out, x, std::move(weight), eps, heads});
}

void PhaseList::add_rope(View x, int64_t heads, int64_t head_dim, int rope) {
  const Domain domain = check(x, "rope x");
  require(domain == Domain::kTokens, "rope: x must have token rows");
  require(heads > 0 && heads * head_dim == x.width, "rope: heads times head_dim differs from the width");
  require(rope >= 0 && rope < static_cast<int>(ropes_.size()), "rope: no such table");
  require(2 * static_cast<int64_t>(ropes_[rope].inv_freq.size()) <= head_dim, "rope: rotary_dim exceeds head_dim");
  append_row_op(domain, RopeRow{x, x, heads, head_dim, rope});
}

void PhaseList::check_place(int group, int place) const {
  require(group >= 0 && group < num_groups_, "no such KV group");
  require(place >= 0 && place < places_per_block_, "no such place in a block");
}

void PhaseList::add_write_kv(View k, View v, int group, int place, int kv_heads, int head_dim) {
  check_place(group, place);
  const Domain domain = check(k, "write_kv k");
  require(check(v, "write_kv v") == domain && domain == Domain::kTokens, "write_kv: k and v must have token rows");
  require(k.width == v.width && k.width == static_cast<int64_t>(kv_heads) * head_dim, "write_kv: width is not heads x dim");
  kv_place_.kv_heads = std::max(kv_place_.kv_heads, kv_heads);
  kv_place_.head_dim = std::max(kv_place_.head_dim, head_dim);
  append_row_op(domain, WriteKvRow{k, v, group, place, kv_heads, head_dim});
}

void PhaseList::add_attention(View out, View q, int group, int place, int heads, int kv_heads, int head_dim,
                              float scale, int window) {
  check_place(group, place);
  require(check(out, "attention out") == Domain::kTokens && check(q, "attention q") == Domain::kTokens,
          "attention: q and out must have token rows");
  require(q.width == out.width && q.width == static_cast<int64_t>(heads) * head_dim, "attention: width is not heads x dim");
  require(kv_heads > 0 && heads % kv_heads == 0, "attention: heads is not a multiple of kv_heads");
  const PlanShape shape{group, heads, kv_heads, head_dim, window, scale};
  auto found = std::find(plans_.begin(), plans_.end(), shape);
  if (found == plans_.end()) found = plans_.insert(plans_.end(), shape);
  phases_.emplace_back(AttentionPhase{out, q, static_cast<int>(found - plans_.begin()), place});
}

void PhaseList::add_gated_activation(View out, View gate, View up, Activation activation) {
  const Domain domain = check(out, "gated_activation out");
  require(check(gate, "gated_activation gate") == domain && check(up, "gated_activation up") == domain &&
              gate.width == out.width && up.width == out.width,
          "gated_activation: gate, up and out differ in shape");
  append_row_op(domain, GatedActivationRow{out, gate, up, activation});
}

void PhaseList::add_sum(View out, View a, View b) {
  const Domain domain = check(out, "add out");
  require(check(a, "add a") == domain && check(b, "add b") == domain && a.width == out.width && b.width == out.width,
          "add: a, b and out differ in shape");
  append_row_op(domain, AddRow{out, a, b});
}

void PhaseList::add_select_rows(View out, View x) {
  require(check(out, "select_rows out") == Domain::kLogits && check(x, "select_rows x") == Domain::kTokens &&
              x.width == out.width,
          "select_rows: x must have token rows, out logits rows, of one width");
  append_row_op(Domain::kLogits, SelectRow{out, x});
  // A row reads another row here, so no thread may go on and overwrite x before all have selected.
  std::get<RowPhase>(phases_.back()).closed = true;
}

void PhaseList::append_linear(Domain domain, View out, View x, std::vector<LinearPart> parts, bool accumulate) {
  std::vector<InputKind> prepared;
  for (const LinearPart& part : parts) {
    if (std::find(prepared.begin(), prepared.end(), part.kind) != prepared.end()) continue;
    prepared.push_back(part.kind);
    append_row_op(domain, PrepareRow{x, part.kind, num_linears_});
  }
  phases_.emplace_back(LinearPhase{domain, out, std::move(parts), accumulate, num_linears_++});
}

void PhaseList::add_linear(View out, View x, std::vector<WeightPtr> weights, bool accumulate, bool int8) {
  const Domain domain = check(out, "linear out");
  require(check(x, "linear x") == domain, "linear: x and out differ in rows");
  std::vector<LinearPart> parts;
  int64_t column = out.offset;
  for (WeightPtr& weight : weights) {
    require(weight->k() == x.width, "linear: weight width differs from x");
    const int64_t n = weight->n();
    const InputKind kind = input_kind(weight->format(), int8);
    parts.push_back({std::move(weight), column, kind});
    column += n;
  }
  require(column == out.offset + out.width, "linear: the weights' rows differ from out's width");
  append_linear(domain, out, x, std::move(parts), accumulate);
}

void PhaseList::add_logits(View x, WeightPtr weight) {
  require(check(x, "logits x") == Domain::kLogits, "logits: x must have logits rows");
  require(weight->k() == x.width && weight->n() == vocab_size_, "logits: weight is not [vocab_size, width]");
  const InputKind kind = input_kind(weight->format(), false);
  const View out{kLogitsBuffer, 0, vocab_size_, Domain::kLogits};
  append_linear(Domain::kLogits, out, x, {{std::move(weight), 0, kind}}, false);
}

PhaseList PhaseList::with(std::vector<Phase> phases, std::vector<int64_t> buffer_widths) const {
  PhaseList other = *this;
  other.phases_ = std::move(phases);
  other.buffer_widths_ = std::move(buffer_widths);
  return other;
}

int64_t PhaseList::longest_input(InputKind kind) const {
  int64_t longest = 0;
  for (const Phase& phase : phases_)
    if (const auto* linear = std::get_if<LinearPhase>(&phase))
      for (const LinearPart& part : linear->parts)
        if (part.kind == kind) longest = std::max(longest, part.weight->k());
  return longest;
}

}  // namespace octavo
