// Bindings of the KV cache and attention, for tests and benchmarks: shapes and dtypes are checked here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <time.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/kv_writer.h"
#include "common/thread_team.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using Floats2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats3 = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Ints1 = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints2 = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

void require(bool ok, const std::string& message) {
  if (!ok) throw std::invalid_argument(message);
}

void check_place(const KvCache& cache, int place) {
  require(place >= 0 && place < cache.shape().places,
          "place is " + std::to_string(place) + ", must be between 0 and " + std::to_string(cache.shape().places - 1));
}

Isa usable_isa(const std::string& name) {
  const Isa isa = parse_isa(name);
  require(isa_supported(isa), "this machine has no " + name);
  return isa;
}

// Writes tokens: k and v [T, kv_heads, head_dim], slots [T] (block * block_size + offset).
void write(const KvCache& cache, int place, Floats3 k, Floats3 v, Ints1 slots, const std::string& isa) {
  const Isa parsed = usable_isa(isa);
  check_place(cache, place);
  const int kv_heads = static_cast<int>(k.shape(1)), head_dim = static_cast<int>(k.shape(2));
  require(k.shape(0) == v.shape(0) && k.shape(1) == v.shape(1) && k.shape(2) == v.shape(2), "k and v differ in shape");
  require(slots.shape(0) == k.shape(0), "slots must have one entry per token");
  require(cache.holds(kv_heads, head_dim), "kv_heads and head_dim do not fit into a place of the cache");
  const int block_size = cache.layout().block_size;
  const int64_t row = int64_t{kv_heads} * head_dim;
  for (size_t t = 0; t < slots.shape(0); ++t)
    require(slots(t) >= 0 && slots(t) < cache.num_blocks() * block_size, "slot is outside of the cache");
  for (size_t t = 0, end; t < slots.shape(0); t = end) {  // as many together as follow each other in a block
    for (end = t + 1; end < slots.shape(0) && slots(end) == slots(end - 1) + 1 && slots(end) % block_size != 0;) ++end;
    const TokenPlace at{cache.start(place, slots(t) / block_size), {0, kv_heads}, head_dim, slots(t) % block_size};
    const KvRows rows{k.data() + t * row, v.data() + t * row, row, row};
    kv_writer(parsed).write(cache.layout(), at, static_cast<int64_t>(end - t), rows);
  }
}

// Every block that some row sees must be mapped: the kernels do not look.
void check_step(const KvCache& cache, const AttentionStep& step, int window, int64_t tokens) {
  const int block_size = cache.layout().block_size;
  require(step.query_start_loc[0] == 0 && step.query_start_loc[step.num_seqs] == tokens,
          "query_start_loc must run from 0 to the rows of q");
  for (int r = 0; r < step.num_seqs; ++r) {
    const int count = step.query_start_loc[r + 1] - step.query_start_loc[r], length = step.seq_lens[r];
    require(count >= 0 && count <= length, "a sequence has more new tokens than context");
    require(length <= step.table_stride * block_size, "block_table is too short for seq_lens");
    const int first = window > 0 && length - count >= window ? length - count - window + 1 : 0;
    for (int b = first / block_size; count > 0 && b <= (length - 1) / block_size; ++b) {
      const int32_t id = step.block_table[r * step.table_stride + b];
      require(id >= 0 && id < cache.num_blocks(), "block_table has " + std::to_string(id) + " where a block is needed");
    }
  }
}

void run(Isa isa, const AttentionPlan& plan, const KvCache& cache, int place, const float* q, float* out, ThreadTeam& team) {
  const int64_t width = int64_t{plan.shape().heads} * plan.shape().head_dim;
  team.run([&](int thread) {
    attention_phase1(isa, plan, cache, place, q, width, out, width, plan.shape().scale, thread, plan.fragments(thread));
    if (!plan.needs_merge()) return;
    team.barrier(thread);
    attention_phase2(isa, plan, cache, place, q, width, out, width, plan.shape().scale, thread);
  });
}

struct Problem {
  Isa isa;
  AttentionStep step;
  AttentionShape shape;
};

Problem make_problem(const KvCache& cache, Floats2 q, int place, Ints1 query_start_loc, Ints1 seq_lens, Ints2 block_table,
                     int heads, int kv_heads, int window, float scale, const std::string& isa) {
  const Isa parsed = usable_isa(isa);
  check_place(cache, place);
  const int num_seqs = static_cast<int>(seq_lens.shape(0));
  require(query_start_loc.shape(0) == seq_lens.shape(0) + 1, "query_start_loc must have one entry more than seq_lens");
  require(block_table.shape(0) == seq_lens.shape(0), "block_table must have a row per sequence");
  require(heads > 0 && q.shape(1) % heads == 0, "q has no whole number of columns per head");
  const int head_dim = static_cast<int>(q.shape(1)) / heads;
  require(cache.holds(kv_heads, head_dim), "kv_heads and head_dim do not fit into a place of the cache");
  require(window >= 0, "window must be at least 0");
  const AttentionStep step{num_seqs, query_start_loc.data(), seq_lens.data(), block_table.data(),
                           static_cast<int64_t>(block_table.shape(1))};
  check_step(cache, step, window, static_cast<int64_t>(q.shape(0)));
  return {parsed, step, {heads, kv_heads, head_dim, scale, window}};
}

Matrix attention(Floats2 q, const KvCache& cache, int place, Ints1 query_start_loc, Ints1 seq_lens, Ints2 block_table,
                 int heads, int kv_heads, int window, float scale, const std::string& isa, ThreadTeam& team) {
  const Problem p = make_problem(cache, q, place, query_start_loc, seq_lens, block_table, heads, kv_heads, window, scale, isa);
  float* out = new float[q.size() + 1];
  nb::capsule owner(out, [](void* data) noexcept { delete[] static_cast<float*>(data); });
  AttentionPlan plan;
  plan.build(p.step, p.shape, cache.layout(), team.size());
  run(p.isa, plan, cache, place, q.data(), out, team);
  return Matrix(out, {q.shape(0), q.shape(1)}, owner);
}

double thread_cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// (wall, CPU time of this thread) of each of `repeats` calls that walk through all places as the layers of a step do,
// in seconds per place.
nb::object time_attention(Floats2 q, const KvCache& cache, Ints1 query_start_loc, Ints1 seq_lens, Ints2 block_table,
                          int heads, int kv_heads, int window, float scale, const std::string& isa, ThreadTeam& team,
                          int repeats) {
  using Clock = std::chrono::steady_clock;
  const Problem p = make_problem(cache, q, 0, query_start_loc, seq_lens, block_table, heads, kv_heads, window, scale, isa);
  std::vector<float> out(q.size() + 1);
  AttentionPlan plan;
  nb::list seconds;
  for (int i = 0; i < repeats; ++i) {
    plan.build(p.step, p.shape, cache.layout(), team.size());
    const auto start = Clock::now();
    const double cpu = thread_cpu_seconds();
    for (int place = 0; place < cache.shape().places; ++place) run(p.isa, plan, cache, place, q.data(), out.data(), team);
    const double cpu_seconds = thread_cpu_seconds() - cpu;
    const double wall_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    seconds.append(nb::make_tuple(wall_seconds / cache.shape().places, cpu_seconds / cache.shape().places));
  }
  return seconds;
}

Bytes block_view(KvCache& cache, int64_t id) {
  require(id >= 0 && id < cache.num_blocks(), "block " + std::to_string(id) + " is not in the cache");
  return Bytes(cache.block(id), {static_cast<size_t>(cache.layout().block_bytes)}, nb::find(cache));
}

}  // namespace

void bind_attention(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<KvCache>(m, "KvCache")
      .def(
          "__init__",
          [](KvCache* self, int64_t num_blocks, int block_size, int places, int kv_heads, int head_dim,
             const std::string& dtype) {
            new (self) KvCache({places, kv_heads, head_dim, block_size, parse_kv_type(dtype)}, num_blocks);
          },
          "num_blocks"_a, "block_size"_a, "places"_a, "kv_heads"_a, "head_dim"_a, "dtype"_a)
      .def_prop_ro("num_blocks", &KvCache::num_blocks)
      .def_prop_ro("block_size", [](const KvCache& cache) { return cache.layout().block_size; })
      .def_prop_ro("block_bytes", [](const KvCache& cache) { return cache.layout().block_bytes; })
      .def_prop_ro("reserved_bytes", &KvCache::reserved_bytes)
      .def("write", &write, "place"_a, "k"_a, "v"_a, "slots"_a, "isa"_a = "avx2")
      .def("commit", &KvCache::commit, "first"_a, "count"_a)
      .def("release", &KvCache::release, "first"_a, "count"_a)
      .def("copy_block", &KvCache::copy_block, "source"_a, "destination"_a)
      .def("block", &block_view, "id"_a, nb::rv_policy::reference, "The bytes of a block, writable.");
  m.def("attention", &attention, "q"_a, "cache"_a, "place"_a, "query_start_loc"_a, "seq_lens"_a, "block_table"_a, "heads"_a,
        "kv_heads"_a, "window"_a, "scale"_a, "isa"_a, "team"_a);
  m.def("time_attention", &time_attention, "q"_a, "cache"_a, "query_start_loc"_a, "seq_lens"_a, "block_table"_a, "heads"_a,
        "kv_heads"_a, "window"_a, "scale"_a, "isa"_a, "team"_a, "repeats"_a);
}

}  // namespace octavo
