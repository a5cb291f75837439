// octavo._native.PhaseList and octavo._native.Runner: shapes and dtypes are checked here, once, for all kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>

#include "runner/runner.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Int32Vector = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Int32Matrix = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatVector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using LogitsArray = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>;
using ViewTuple = std::tuple<int, int64_t, int64_t, bool>;  // buffer, offset, width, has logits rows

View view(const ViewTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t) ? Domain::kLogits : Domain::kTokens};
}

std::shared_ptr<PhaseList> make_phase_list(const std::vector<int64_t>& buffer_widths,
                                           const std::vector<std::pair<std::vector<float>, float>>& ropes,
                                           int num_groups, int places_per_block, int64_t vocab_size) {
  std::vector<RotaryTable> tables;
  for (const auto& [inv_freq, scaling] : ropes) tables.push_back({inv_freq, scaling});
  return std::make_shared<PhaseList>(buffer_widths, std::move(tables), num_groups, places_per_block, vocab_size);
}

Activation activation(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  throw std::invalid_argument("activation is '" + name + "', must be silu or gelu_tanh");
}

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

LogitsArray execute(Runner& runner, Int32Vector token_ids, Int32Vector positions, Int32Vector query_start_loc,
                    Int32Vector seq_lens, const std::vector<Int32Matrix>& block_tables, Int32Vector logits_rows,
                    Int32Matrix copies) {
  const int64_t num_seqs = static_cast<int64_t>(seq_lens.shape(0));
  require(positions.shape(0) == token_ids.shape(0), "step: positions and token_ids differ in length");
  require(static_cast<int64_t>(query_start_loc.shape(0)) == num_seqs + 1, "step: query_start_loc must have num_seqs + 1 entries");
  require(copies.shape(1) == 2, "step: copies must be pairs");
  StepView step{static_cast<int64_t>(token_ids.shape(0)),
                num_seqs,
                static_cast<int64_t>(logits_rows.shape(0)),
                static_cast<int64_t>(copies.shape(0)),
                token_ids.data(),
                positions.data(),
                query_start_loc.data(),
                seq_lens.data(),
                logits_rows.data(),
                copies.data(),
                {}};
  for (const Int32Matrix& table : block_tables) {
    require(static_cast<int64_t>(table.shape(0)) == num_seqs, "step: a block table must have a row per sequence");
    step.block_tables.push_back({table.data(), static_cast<int64_t>(table.shape(1))});
  }
  float* logits = nullptr;
  {
    nb::gil_scoped_release release;
    logits = runner.execute(step);
  }
  const size_t shape[2] = {static_cast<size_t>(step.num_logits), static_cast<size_t>(runner.vocab_size())};
  return LogitsArray(logits, 2, shape, nb::find(runner));
}

void bind_phase_list(nb::module_& m) {
  nb::class_<PhaseList>(m, "PhaseList")
      .def("add_embed", [](PhaseList& p, const ViewTuple& out, std::shared_ptr<PackedWeight> weight,
                           float scale) { p.add_embed(view(out), std::move(weight), scale); })
      .def("add_rms_norm",
           [](PhaseList& p, const ViewTuple& out, const ViewTuple& x, FloatVector weight, float eps, int64_t heads) {
             auto copy = std::make_shared<std::vector<float>>(weight.data(), weight.data() + weight.shape(0));
             p.add_rms_norm(view(out), view(x), std::move(copy), eps, heads);
           })
      .def("add_rope", [](PhaseList& p, const ViewTuple& x, int64_t heads, int64_t head_dim,
                          int rope) { p.add_rope(view(x), heads, head_dim, rope); })
      .def("add_write_kv", [](PhaseList& p, const ViewTuple& k, const ViewTuple& v, int group, int place, int kv_heads,
                              int head_dim) { p.add_write_kv(view(k), view(v), group, place, kv_heads, head_dim); })
      .def("add_attention",
           [](PhaseList& p, const ViewTuple& out, const ViewTuple& q, int group, int place, int heads, int kv_heads,
              int head_dim, float scale, int window) {
             p.add_attention(view(out), view(q), group, place, heads, kv_heads, head_dim, scale, window);
           })
      .def("add_gated_activation",
           [](PhaseList& p, const ViewTuple& out, const ViewTuple& gate, const ViewTuple& up, const std::string& name) {
             p.add_gated_activation(view(out), view(gate), view(up), activation(name));
           })
      .def("add_sum", [](PhaseList& p, const ViewTuple& out, const ViewTuple& a,
                         const ViewTuple& b) { p.add_sum(view(out), view(a), view(b)); })
      .def("add_select_rows",
           [](PhaseList& p, const ViewTuple& out, const ViewTuple& x) { p.add_select_rows(view(out), view(x)); })
      .def("add_linear",
           [](PhaseList& p, const ViewTuple& out, const ViewTuple& x,
              const std::vector<std::shared_ptr<PackedWeight>>& weights, bool accumulate, bool int8_activations) {
             p.add_linear(view(out), view(x), {weights.begin(), weights.end()}, accumulate, int8_activations);
           },
           "out"_a, "x"_a, "weights"_a, "accumulate"_a, "int8_activations"_a)
      .def("add_logits", [](PhaseList& p, const ViewTuple& x, std::shared_ptr<PackedWeight> weight) {
        p.add_logits(view(x), std::move(weight));
      });
  m.def("make_phase_list", &make_phase_list, "buffer_widths"_a, "ropes"_a, "num_groups"_a, "places_per_block"_a,
        "vocab_size"_a, "ropes are (inv_freq, attention_scaling).");
}

}  // namespace

void bind_runner(nb::module_& m) {
  bind_phase_list(m);
  nb::class_<Runner>(m, "Runner")
      .def("__init__",
           [](Runner* self, const PhaseList& program, const std::string& isa, const std::string& kv, ThreadTeam& team) {
             new (self) Runner(program, parse_isa(isa), parse_kv_type(kv), team);
           },
           "program"_a, "instruction_set"_a, "kv_dtype"_a, "team"_a, nb::keep_alive<1, 5>())
      .def("block_bytes", &Runner::block_bytes)
      .def("reserve_kv", &Runner::reserve_kv)
      .def("commit_blocks", &Runner::commit_blocks, nb::call_guard<nb::gil_scoped_release>())
      .def("release_blocks", &Runner::release_blocks)
      .def("execute", &execute)
      .def_prop_ro("arena_bytes", &Runner::arena_bytes)
      .def("few_row_meetings", &Runner::few_row_meetings)
      .def("take_profile", &Runner::take_profile)
      .def("profile_in_detail", &Runner::profile_in_detail);
}

}  // namespace octavo
