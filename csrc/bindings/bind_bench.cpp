// What `octavo bench kernels` times besides whole linears and attention: the machine's limits, and operations on rows.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/isa.h"
#include "common/mapped_memory.h"
#include "common/thread_team.h"
#include "limits/limits.h"
#include "linear/linear.h"
#include "rows/row_kernels.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLeastRead = int64_t{32} << 20;  // bytes of one timing: a small memory is read many times over
constexpr double kLeastSeconds = 0.01;             // of a timing of products

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

Isa usable_isa(const std::string& name) {
  const Isa isa = parse_isa(name);
  require(isa_supported(isa), "this machine has no " + name);
  return isa;
}

// Least seconds of `repeats` calls.
template <class Call>
double least_seconds(int repeats, Call&& call) {
  double least = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    call();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return least;
}

// What the loops return goes here, so that they are not left out.
void keep(uint64_t value) { asm volatile("" : : "r"(value)); }
void keep(float value) { asm volatile("" : : "x"(value)); }

double time_reads(int64_t bytes, const std::string& isa, ThreadTeam& team, int repeats) {
  require(bytes > 0 && repeats > 0, "bytes and repeats must be at least 1");
  const LimitLoops& loops = limit_loops(usable_isa(isa));
  const int64_t grain = kReadGrain * team.size();
  const int64_t whole = (bytes + grain - 1) / grain * grain, sweeps = std::max<int64_t>(1, kLeastRead / whole);
  nb::gil_scoped_release release;
  const MappedMemory memory(static_cast<size_t>(whole));
  const int64_t mine = whole / team.size();
  team.run([&](int thread) { std::memset(memory.data() + thread * mine, 1, static_cast<size_t>(mine)); });
  const double seconds = least_seconds(repeats, [&] {
    team.run([&](int thread) {
      for (int64_t sweep = 0; sweep < sweeps; ++sweep) keep(loops.read(memory.data() + thread * mine, mine));
    });
  });
  return static_cast<double>(whole * sweeps) / seconds;
}

double time_products(const std::string& kind, const std::string& isa, ThreadTeam& team, int repeats) {
  require(kind == "int8" || kind == "bf16" || kind == "float32", "kind is '" + kind + "', must be int8, bf16 or float32");
  require(repeats > 0, "repeats must be at least 1");
  const ProductKind which = kind == "int8" ? ProductKind::kInt8 : kind == "bf16" ? ProductKind::kBf16 : ProductKind::kF32;
  const ProductLoop& loop = limit_loops(usable_isa(isa)).products[static_cast<int>(which)];
  if (loop.run == nullptr) return 0.0;
  nb::gil_scoped_release release;
  int64_t rounds = 1000;
  const auto run = [&] { team.run([&](int) { keep(loop.run(rounds)); }); };
  while (least_seconds(1, run) < kLeastSeconds) rounds *= 2;
  return static_cast<double>(loop.operations * rounds * team.size()) / least_seconds(repeats, run);
}

// One row's operation on `x`, of `width` values; `out` has room for as many.
using RowCall = std::function<void(int64_t row, float* x, float* out)>;

RowCall row_call(const std::string& name, Isa isa, int64_t rows, int64_t width, int64_t heads,
                 const std::vector<float>& ones, void* prepared) {
  const RowKernels& kernels = row_kernels(isa);
  const float* const one = ones.data();
  if (name == "rms_norm") return [=](int64_t, float* x, float* out) { kernels.rms_norm(x, one, 1e-5f, heads, width, out); };
  if (name == "rope") {
    const int64_t dim = width / heads;
    return [=](int64_t, float* x, float*) { kernels.rope(x, heads, dim, dim / 2, one, one, x); };
  }
  if (name == "silu_mul") return [=](int64_t, float* x, float* out) { kernels.silu_mul(x, one, width, out); };
  if (name == "gelu_tanh_mul") return [=](int64_t, float* x, float* out) { kernels.gelu_tanh_mul(x, one, width, out); };
  if (name == "add") return [=](int64_t, float* x, float* out) { kernels.add(x, one, width, out); };
  const InputKind kind = name == "prepare_integers" ? InputKind::kA14
                         : name == "prepare_int8"   ? InputKind::kA8
                                                    : InputKind::kBf16;
  require(kind != InputKind::kBf16 || name == "prepare_bf16", "no operation on rows is called '" + name + "'");
  return [=](int64_t row, float* x, float*) { prepare_row(isa, kind, x, width, row, rows, prepared); };
}

double time_row_operation(const std::string& name, int64_t rows, int64_t width, int64_t heads, const std::string& isa_text,
                          ThreadTeam& team, int repeats) {
  require(rows > 0 && width > 0 && heads > 0 && width % heads == 0, "width must be a multiple of heads, rows at least 1");
  require(repeats > 0, "repeats must be at least 1");
  const Isa isa = usable_isa(isa_text);
  std::vector<float> x(static_cast<size_t>(rows * width)), out(x.size()), ones(static_cast<size_t>(width), 0.5f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000) * 1e-3f;
  int64_t bytes = 0;
  for (const InputKind kind : {InputKind::kBf16, InputKind::kA14, InputKind::kA8})
    bytes = std::max(bytes, prepared_bytes(kind, rows, width));
  const MappedMemory prepared(static_cast<size_t>(bytes));
  const RowCall call = row_call(name, isa, rows, width, heads, ones, prepared.data());
  nb::gil_scoped_release release;
  return least_seconds(repeats, [&] {
    team.run([&](int thread) {
      const Range mine = share(rows, thread, team.size());
      for (int64_t row = mine.begin; row < mine.end; ++row) call(row, &x[row * width], &out[row * width]);
    });
  });
}

}  // namespace

void bind_bench(nb::module_& m) {
  m.def("time_reads", &time_reads, "bytes"_a, "isa"_a, "team"_a, "repeats"_a = 5,
        "Bytes a second that the team reads from a memory of so many bytes, over and over: the best of `repeats`.");
  m.def("time_products", &time_products, "kind"_a, "isa"_a, "team"_a, "repeats"_a = 5,
        "Operations a second (a product and its addition are two) on values in registers, the best of `repeats`. kind: int8,\n"
        "bf16 or float32; 0 where the instruction set has no such products.");
  m.def("time_row_operation", &time_row_operation, "name"_a, "rows"_a, "width"_a, "heads"_a, "isa"_a, "team"_a,
        "repeats"_a = 5,
        "Least seconds of one operation on rows [rows, width]: rms_norm, rope, silu_mul, gelu_tanh_mul, add,\n"
        "prepare_integers, prepare_int8, prepare_bf16. heads: into how many parts of its own rms_norm and rope divide a row.");
}

}  // namespace octavo
