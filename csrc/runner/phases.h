// A program as the native runner executes it: a list of phases with a barrier after each.
//
// Operations that touch one row at a time are fused into one phase: a thread takes a share of the rows and runs all of
// them on a row while it is in cache. Linears split their output columns over the threads, attention its tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "linear/linear.h"

namespace octavo {

enum class Domain { kTokens, kLogits };  // one row per token of the step, or per wanted logit

// Columns [offset, offset + width) of buffer number `buffer`. A buffer may serve both domains, one after the other.
struct View {
  int buffer;
  int64_t offset, width;
  Domain domain;
};

using WeightPtr = std::shared_ptr<const PackedWeight>;
using VectorPtr = std::shared_ptr<const std::vector<float>>;

struct EmbedRow {
  View out;
  WeightPtr weight;
  float scale;
};
struct RmsNormRow {
  View out, x;
  VectorPtr weight;
  float eps;
  int64_t heads;
};
struct RopeRow {
  View out, x;
  int64_t heads, head_dim;
  int rope;  // number of the rotary table
};
struct WriteKvRow {
  View k, v;
  int group, place;
  int kv_heads, head_dim;
  int plan = -1;  // of the attention that comes next, where it reads what this writes: see row_values.h
};
enum class Activation { kSilu, kGeluTanh };
struct GatedActivationRow {
  View out, gate, up;
  Activation activation;
};
struct AddRow {
  View out, a, b;
};
struct SelectRow {
  View out, x;
};
// Converts a row of x to the form in which linears of one kind read it.
struct PrepareRow {
  View x;
  InputKind kind;
  int linear;  // which one, counted from 0
};
using RowOp =
    std::variant<EmbedRow, RmsNormRow, RopeRow, WriteKvRow, GatedActivationRow, AddRow, SelectRow, PrepareRow>;

struct RowPhase {
  Domain domain;
  std::vector<RowOp> ops;
  bool closed = false;  // nothing more is fused into it
  bool joint = false;   // writes values that linears or attention write too: see row_values.h
};

struct LinearPart {
  WeightPtr weight;
  int64_t column;  // first output column
  InputKind kind;  // in which it reads its input
};
constexpr int kLogitsBuffer = -1;  // the step's result
struct LinearPhase {
  Domain domain;
  View out;
  std::vector<LinearPart> parts;
  bool accumulate;
  int number;  // among linears, from 0

  int64_t panels() const;  // of all parts
  const uint8_t* panel(int64_t index) const;  // of all parts; nullptr behind the last one
};

struct AttentionPhase {
  View out, q;
  int plan;   // which attention plan: layers with equal block tables and shapes share one
  int place;  // the layer's place in a block
};

using Phase = std::variant<RowPhase, LinearPhase, AttentionPhase>;

// What a profile calls it: "rows", "attention", "logits", or a linear's inputs and outputs, "linear 576x1536".
std::string phase_name(const Phase& phase);

// What an attention plan is made for.
struct PlanShape {
  int group, heads, kv_heads, head_dim, window;
  float scale;
  bool operator==(const PlanShape& o) const {
    return group == o.group && heads == o.heads && kv_heads == o.kv_heads && head_dim == o.head_dim &&
           window == o.window && scale == o.scale;
  }
};

struct RotaryTable {
  std::vector<float> inv_freq;
  float attention_scaling;
};

struct KvPlace {
  int kv_heads, head_dim;
};

// The compiled program. add_* append operations in order; each checks the views that it is given and throws
// std::invalid_argument otherwise.
class PhaseList {
 public:
  PhaseList(std::vector<int64_t> buffer_widths, std::vector<RotaryTable> ropes, int num_groups, int places_per_block,
            int64_t vocab_size);

  void add_embed(View out, WeightPtr weight, float scale);
  void add_rms_norm(View out, View x, VectorPtr weight, float eps, int64_t heads);
  void add_rope(View x, int64_t heads, int64_t head_dim, int rope);
  void add_write_kv(View k, View v, int group, int place, int kv_heads, int head_dim);
  void add_attention(View out, View q, int group, int place, int heads, int kv_heads, int head_dim, float scale,
                     int window);
  void add_gated_activation(View out, View gate, View up, Activation activation);
  void add_sum(View out, View a, View b);
  void add_select_rows(View out, View x);
  // int8: weights of integer formats take 8-bit activations.
  void add_linear(View out, View x, std::vector<WeightPtr> weights, bool accumulate, bool int8);
  void add_logits(View x, WeightPtr weight);

  // Other phases, over buffers of other widths, that do the same.
  PhaseList with(std::vector<Phase> phases, std::vector<int64_t> buffer_widths) const;

  const std::vector<Phase>& phases() const { return phases_; }
  const std::vector<int64_t>& buffer_widths() const { return buffer_widths_; }
  const std::vector<RotaryTable>& ropes() const { return ropes_; }
  const std::vector<PlanShape>& plans() const { return plans_; }
  // Most KV heads and largest head of any layer: the shape of a place.
  KvPlace kv_place() const { return kv_place_; }
  int num_groups() const { return num_groups_; }
  int places_per_block() const { return places_per_block_; }
  int64_t vocab_size() const { return vocab_size_; }
  // The longest input of the linears that read `kind`; 0 where none does.
  int64_t longest_input(InputKind kind) const;
  int num_linears() const { return num_linears_; }

 private:
  Domain check(const View& view, const char* name) const;
  void append_row_op(Domain domain, RowOp op);
  void append_linear(Domain domain, View out, View x, std::vector<LinearPart> parts, bool accumulate);
  void check_place(int group, int place) const;

  std::vector<int64_t> buffer_widths_;
  std::vector<RotaryTable> ropes_;
  int num_groups_, places_per_block_, num_linears_ = 0;
  int64_t vocab_size_;
  std::vector<Phase> phases_;
  std::vector<PlanShape> plans_;
  KvPlace kv_place_{0, 0};
};

}  // namespace octavo
