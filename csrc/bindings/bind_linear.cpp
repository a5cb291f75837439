// PackedWeight for Python: packing, and whole matrix products for tests and benchmarks.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/isa.h"
#include "common/mapped_memory.h"
#include "common/thread_team.h"
#include "linear/linear.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Order = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

template <class T>
auto new_matrix(int64_t rows, int64_t columns) {
  T* const data = new T[static_cast<size_t>(rows * columns)]();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<2>>(data, {static_cast<size_t>(rows), static_cast<size_t>(columns)}, owner);
}

void require(const char* what, int64_t given, int64_t wanted) {
  if (given != wanted)
    throw std::invalid_argument(std::string(what) + " is " + std::to_string(given) + ", must be " + std::to_string(wanted));
}

Isa usable_isa(const std::string& name) {
  const Isa isa = parse_isa(name);
  if (!isa_supported(isa)) throw std::invalid_argument("instruction_set '" + name + "' is not supported by this machine");
  return isa;
}

std::unique_ptr<PackedWeight> pack(const std::string& format, const std::string& kind, Bytes raw, int64_t n, int64_t k,
                                   ThreadTeam& team, std::optional<Order> row_order, std::optional<Vector> bias,
                                   std::shared_ptr<WeightArena> arena) {
  const TensorKind tensor_kind = parse_kind(kind);
  const int64_t values = kind_block_values(tensor_kind);
  if (n < 1 || k < 1 || k > kMaxK || k % values != 0)
    throw std::invalid_argument("shape is [" + std::to_string(n) + ", " + std::to_string(k) + "], must be [>= 1, 1 to " +
                                std::to_string(kMaxK) + " and a multiple of " + std::to_string(values) + "] for " + kind);
  require("bytes of raw", static_cast<int64_t>(raw.size()), n * (k / values) * kind_block_bytes(tensor_kind));
  if (row_order) require("length of row_order", static_cast<int64_t>(row_order->size()), n);
  if (bias) require("length of bias", static_cast<int64_t>(bias->size()), n);
  const WeightFormat weight_format = parse_format(format);
  nb::gil_scoped_release release;
  return PackedWeight::pack(weight_format, tensor_kind, raw.data(), n, k, row_order ? row_order->data() : nullptr,
                            bias ? bias->data() : nullptr, team, std::move(arena));
}

// Everything that one matrix product needs, allocated once.
struct Product {
  Isa isa;
  InputKind kind;
  const PackedWeight& weight;
  int64_t rows, scratch_each;
  MappedMemory prepared, scratch;

  Product(Isa which, InputKind input, const PackedWeight& of, int64_t count, const ThreadTeam& team)
      : isa(which), kind(input), weight(of), rows(count),
        scratch_each((scratch_bytes(isa, kind, rows) + 63) / 64 * 64),
        prepared(static_cast<size_t>(prepared_bytes(kind, rows, weight.k()))),
        scratch(static_cast<size_t>(scratch_each * team.size())) {}

  void run(const float* x, float* out, bool accumulate, ThreadTeam& team) {
    team.run([&](int thread) {
      const Range mine = share(rows, thread, team.size());
      for (int64_t row = mine.begin; row < mine.end; ++row)
        prepare_row(isa, kind, x + row * weight.k(), weight.k(), row, rows, prepared.data());
      team.barrier(thread);
      const Range panels = share(weight.panels(), thread, team.size());
      linear(isa, kind, weight, prepared.data(), rows, out, weight.n(), accumulate, panels.begin, panels.end,
             scratch.data() + thread * scratch_each, nullptr);
    });
  }
};

Result matmul(const PackedWeight& weight, Matrix x, const std::string& isa, ThreadTeam& team,
              std::optional<Matrix> add_to, bool int8_activations) {
  const int64_t rows = static_cast<int64_t>(x.shape(0));
  require("columns of x", static_cast<int64_t>(x.shape(1)), weight.k());
  auto out = new_matrix<float>(rows, weight.n());
  if (add_to) {
    require("rows of add_to", static_cast<int64_t>(add_to->shape(0)), rows);
    require("columns of add_to", static_cast<int64_t>(add_to->shape(1)), weight.n());
    std::copy(add_to->data(), add_to->data() + rows * weight.n(), out.data());
  }
  Product product(usable_isa(isa), input_kind(weight.format(), int8_activations), weight, rows, team);
  nb::gil_scoped_release release;
  product.run(x.data(), out.data(), add_to.has_value(), team);
  return out;
}

// Values of which few are large, as a model's are: their mean magnitude is a tenth of the largest. How often sums of products
// must be carried depends on that.
std::vector<float> typical_inputs(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const float even = static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000) * 1e-3f;
    const float cube = even * even * even;
    values[i] = cube * cube * cube;
  }
  return values;
}

// The least time of one product in seconds, activation preparation included.
double time_matmul(const PackedWeight& weight, int64_t rows, const std::string& isa, ThreadTeam& team, int repeats,
                   bool int8_activations) {
  if (rows < 1 || repeats < 1) throw std::invalid_argument("rows and repeats must be at least 1");
  const std::vector<float> x = typical_inputs(rows * weight.k());
  std::vector<float> out(static_cast<size_t>(rows * weight.n()));
  Product product(usable_isa(isa), input_kind(weight.format(), int8_activations), weight, rows, team);
  nb::gil_scoped_release release;
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    product.run(x.data(), out.data(), false, team);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = seconds < best ? seconds : best;
  }
  return best;
}

// Seconds of all linears one after the other (distinct weights: the caches are as cold as in a model), a barrier after each:
// the sum of each one's least time, which a busy machine disturbs less than the least sum. The inputs are prepared before.
double time_linears(const std::vector<const PackedWeight*>& weights, int64_t rows, const std::string& isa_text,
                    ThreadTeam& team, int repeats, bool int8_activations) {
  if (rows < 1 || repeats < 1 || weights.empty()) throw std::invalid_argument("rows, repeats and weights must not be empty");
  const Isa isa = usable_isa(isa_text);
  std::vector<std::unique_ptr<Product>> products;
  int64_t longest = 0;
  for (const PackedWeight* weight : weights) longest = std::max(longest, weight->n());
  const MappedMemory out_memory(static_cast<size_t>(rows * longest) * sizeof(float));
  float* const out = reinterpret_cast<float*>(out_memory.data());
  std::vector<int64_t> input_of;  // weights with the same k and kind share one prepared input
  for (const PackedWeight* weight : weights) {
    const InputKind kind = input_kind(weight->format(), int8_activations);
    size_t found = 0;
    while (found < products.size() &&
           !(products[found]->weight.k() == weight->k() && products[found]->kind == kind))
      ++found;
    if (found == products.size()) {
      products.push_back(std::make_unique<Product>(isa, kind, *weight, rows, team));
      const std::vector<float> x = typical_inputs(rows * weight->k());
      products.back()->run(x.data(), out, false, team);
    }
    input_of.push_back(static_cast<int64_t>(found));
  }
  nb::gil_scoped_release release;
  std::vector<double> best(weights.size(), 1e30);
  for (int i = 0; i < repeats; ++i)
    team.run([&](int thread) {
      auto start = std::chrono::steady_clock::now();
      for (size_t w = 0; w < weights.size(); ++w) {
        const Product& product = *products[static_cast<size_t>(input_of[w])];
        const Range panels = share(weights[w]->panels(), thread, team.size());
        const PackedWeight& next = *weights[(w + 1) % weights.size()];
        linear(isa, product.kind, *weights[w], product.prepared.data(), rows, out, weights[w]->n(), false,
               panels.begin, panels.end, product.scratch.data() + thread * product.scratch_each,
               next.panel(share(next.panels(), thread, team.size()).begin));
        team.barrier(thread);
        if (thread != 0) continue;
        const auto end = std::chrono::steady_clock::now();
        best[w] = std::min(best[w], std::chrono::duration<double>(end - start).count());
        start = end;
      }
    });
  return std::accumulate(best.begin(), best.end(), 0.0);
}

Result dequantize(const PackedWeight& weight) {
  auto out = new_matrix<float>(weight.n(), weight.k());
  for (int64_t row = 0; row < weight.n(); ++row) embed_row(weight, row, 1.0f, out.data() + row * weight.k());
  return out;
}

nb::tuple integers(const PackedWeight& weight) {
  if (!is_integer(weight.format()))
    throw std::invalid_argument(std::string("format '") + format_name(weight.format()) + "' has no integers");
  auto w_int = new_matrix<int16_t>(weight.n(), weight.k());
  auto scales = new_matrix<float>(weight.n(), 1);
  for (int64_t row = 0; row < weight.n(); ++row)
    scales.data()[row] = weight.integer_row(row, w_int.data() + row * weight.k());
  return nb::make_tuple(w_int, scales);
}

std::vector<std::string> format_names(const std::string& kind) {
  std::vector<std::string> names;
  for (WeightFormat format : formats_for(parse_kind(kind))) names.emplace_back(format_name(format));
  return names;
}

}  // namespace
}  // namespace octavo

void bind_linear(nb::module_& m) {
  using namespace octavo;
  m.def("formats_for", &format_names, nb::arg("kind"), "Formats a tensor kind can be packed into, the closest first.");
  nb::class_<WeightArena>(m, "WeightArena", "Shared memory of many packed weights, in huge pages where the system has them.")
      .def(nb::init<>())
      .def_prop_ro("reserved_bytes", &WeightArena::reserved_bytes);
  nb::class_<PackedWeight>(m, "PackedWeight", "A weight matrix [n, k] in the order in which the kernels read it.")
      .def_static("pack", &pack, nb::arg("format"), nb::arg("kind"), nb::arg("raw"), nb::arg("n"), nb::arg("k"),
                  nb::arg("team"), nb::arg("row_order") = nb::none(), nb::arg("bias") = nb::none(),
                  nb::arg("arena") = nb::none())
      .def_prop_ro("format", [](const PackedWeight& w) { return std::string(format_name(w.format())); })
      .def_prop_ro("n", &PackedWeight::n)
      .def_prop_ro("k", &PackedWeight::k)
      .def_prop_ro("panels", &PackedWeight::panels)
      .def_prop_ro("nbytes", &PackedWeight::bytes)
      .def("matmul", &matmul, nb::arg("x"), nb::arg("isa"), nb::arg("team"), nb::arg("add_to") = nb::none(),
           nb::arg("int8_activations") = false,
           "x [rows, k] times the transposed weight (+ bias) (+ add_to): [rows, n] float32.")
      .def("time_matmul", &time_matmul, nb::arg("rows"), nb::arg("isa"), nb::arg("team"), nb::arg("repeats") = 10,
           nb::arg("int8_activations") = false,
           "The least time in seconds of one product, its input's preparation included.")
      .def("dequantize", &dequantize, "float32 [n, k]: what the packed form represents.")
      .def("integers", &integers, "(w_int int16 [n, k], D float32 [n, 1]) of an integer format.");
  m.def("time_linears", &time_linears, nb::arg("weights"), nb::arg("rows"), nb::arg("isa"), nb::arg("team"),
        nb::arg("repeats") = 5, nb::arg("int8_activations") = false,
        "Seconds of all linears in order, inputs prepared: the sum of each one's least time.");
}
