// Integer formats with AMX: weights and activations as two byte planes each, four tile products, exact in int32.
//
// With w = 256*wh + wl and a = 256*ah + al (high bytes signed, low bytes unsigned) the sum over k is
// 65536*HH + 256*M + LL, HH = sum(wh*ah), M = sum(wh*al + wl*ah), LL = sum(wl*al).
//
// A thread's work is a list of jobs: a panel and a chunk of k, in steps of 64 inputs. A step's weights are expanded once,
// for all rows, into a ring that stays in L1. Tiles and vectors run at once: between the tile products of one step come the
// expansion of a later step, and the scaling and writing of earlier sums, in small pieces.
#include <cstring>

#include "linear/expand_avx512.h"
#include "linear/kernels.h"
#include "linear/pending_avx512.h"
#include "linear/simd512.h"
#include "linear/tile_config.h"

namespace octavo {
namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kStepBytes = 2 * kTileBytes;     // 64 inputs of a panel, or of 16 rows: high and low tile
constexpr int64_t kChunkSteps = 32;                // of one job at most
constexpr int64_t kSums = 3 * kPanel * kTileRows;  // int32 of HH, M and LL
constexpr int64_t kAhead = 2;                      // steps between the expansion of weights and their use
// int32 holds M and LL for this many steps (2 * 128 * 255 * 64 * 512 < 2^31); longer rows go on in double, exactly.
constexpr int64_t kCarrySteps = 512;

// How k is cut into chunks, how much of the expanded weights and how many sums are kept.
struct Plan {
  int64_t kp, steps, chunks, chunk_steps, chunks_per_carry, tiles, slots, ring;

  Plan(int64_t k, int64_t rows) : kp(padded_k(k)), steps(kp / 64) {
    tiles = (rows + kTileRows - 1) / kTileRows;
    const bool one_pass = tiles <= 2;
    const int64_t longest = one_pass ? kCarrySteps : kChunkSteps;
    chunks = (steps + longest - 1) / longest;
    chunk_steps = (steps + chunks - 1) / chunks;
    chunks = (steps + chunk_steps - 1) / chunk_steps;
    chunks_per_carry = kCarrySteps / chunk_steps;
    slots = chunks > 1 ? tiles : (tiles < 2 ? 1 : 2);
    ring = one_pass ? 2 * kAhead : chunk_steps + kAhead;
  }
  int64_t ring_bytes() const { return ring * kStepBytes; }
  int64_t sums_bytes() const { return slots * kSums * 4; }
  int64_t carried_bytes() const { return chunks > chunks_per_carry ? tiles * kTileRows * kPanel * 8 : 0; }
  int64_t scratch_bytes() const { return ring_bytes() + sums_bytes() + carried_bytes(); }
  int64_t steps_of(int64_t chunk) const {
    const int64_t left = steps - chunk * chunk_steps;
    return left < chunk_steps ? left : chunk_steps;
  }
};

// A place in the ring of expanded steps.
class Ring {
 public:
  Ring() = default;
  Ring(uint8_t* base, int64_t size, int64_t index) : base_(base), size_(size), index_(index) {}
  uint8_t* at() const { return base_ + index_ * kStepBytes; }
  void advance() { index_ = index_ + 1 == size_ ? 0 : index_ + 1; }

 private:
  uint8_t* base_ = nullptr;
  int64_t size_ = 1, index_ = 0;
};

inline void load_sums(bool first, const int32_t* sums0, const int32_t* sums1) {
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    return;
  }
  _tile_loadd(0, sums0, 64);
  _tile_loadd(1, sums0 + 256, 64);
  _tile_loadd(2, sums0 + 512, 64);
  _tile_loadd(3, sums1, 64);
  _tile_loadd(4, sums1 + 256, 64);
  _tile_loadd(5, sums1 + 512, 64);
}

// Adds `steps` steps to the sums (tiles 0-2) of 16 rows. side(slot) is called between the products, slot 0 to 3.
template <class Side>
inline void multiply_one(const uint8_t* a, Ring b, int64_t steps, Side& side) {
  for (int64_t step = 0; step < steps; ++step, a += kStepBytes, b.advance()) {
    const uint8_t* const w = b.at();
    _tile_loadd(4, a, 64);
    _tile_loadd(6, w, 64);
    _tile_dpbssd(0, 4, 6);
    side.template slot<0, 4>();
    _tile_loadd(5, a + kTileBytes, 64);
    _tile_dpbusd(1, 5, 6);
    side.template slot<1, 4>();
    _tile_loadd(7, w + kTileBytes, 64);
    _tile_dpbuud(2, 5, 7);
    side.template slot<2, 4>();
    _tile_dpbsud(1, 4, 7);
    side.template slot<3, 4>();
    side.end_step();
  }
}

// The same for 32 rows: tiles 0-2 and 3-5, slots 0 to 7.
template <class Side>
inline void multiply_two(const uint8_t* a0, const uint8_t* a1, Ring b, int64_t steps, Side& side) {
  for (int64_t step = 0; step < steps; ++step, a0 += kStepBytes, a1 += kStepBytes, b.advance()) {
    const uint8_t* const w = b.at();
    _tile_loadd(7, w, 64);
    _tile_loadd(6, a0, 64);
    _tile_dpbssd(0, 6, 7);
    side.template slot<0, 8>();
    _tile_loadd(6, a1, 64);
    _tile_dpbssd(3, 6, 7);
    side.template slot<1, 8>();
    _tile_loadd(6, a0 + kTileBytes, 64);
    _tile_dpbusd(1, 6, 7);
    side.template slot<2, 8>();
    _tile_loadd(6, a1 + kTileBytes, 64);
    _tile_dpbusd(4, 6, 7);
    side.template slot<3, 8>();
    _tile_loadd(7, w + kTileBytes, 64);
    _tile_dpbuud(5, 6, 7);
    side.template slot<4, 8>();
    _tile_loadd(6, a0 + kTileBytes, 64);
    _tile_dpbuud(2, 6, 7);
    side.template slot<5, 8>();
    _tile_loadd(6, a0, 64);
    _tile_dpbsud(1, 6, 7);
    side.template slot<6, 8>();
    _tile_loadd(6, a1, 64);
    _tile_dpbsud(4, 6, 7);
    side.template slot<7, 8>();
    side.end_step();
  }
}

inline void store_sums(int32_t* sums0, int32_t* sums1) {
  _tile_stored(0, sums0, 64);
  _tile_stored(1, sums0 + 256, 64);
  _tile_stored(2, sums0 + 512, 64);
  if (!sums1) return;
  _tile_stored(3, sums1, 64);
  _tile_stored(4, sums1 + 256, 64);
  _tile_stored(5, sums1 + 512, 64);
}

// Expands one step after the other, over panels and chunks.
template <class F>
class Expander {
 public:
  Expander(const PackedWeight& weight, int64_t panel, int64_t panel_end, const Plan& plan, uint8_t* ring)
      : weight_(weight), kp_(plan.kp), steps_(plan.steps), panel_(panel), panel_end_(panel_end), ring_(ring, plan.ring, 0) {
    panel_bytes_ = weight.panel(panel);
  }
  bool done() const { return panel_ >= panel_end_; }

  // Part Slot of Slots of the present step.
  template <int Slot, int Slots>
  inline void part() {
    vectors<Slot * kStepVectors<F> / Slots, (Slot + 1) * kStepVectors<F> / Slots>();
  }

  inline void end_step() {
    ring_.advance();
    if (++step_ < steps_) return;
    step_ = 0;
    if (++panel_ < panel_end_) panel_bytes_ = weight_.panel(panel_);
  }

 private:
  template <int First, int Last>
  inline void vectors() {
    if constexpr (First < Last) {
      expand_vector<F, First>(panel_bytes_, kp_, step_, ring_.at(), scales_);
      vectors<First + 1, Last>();
    }
  }

  const PackedWeight& weight_;
  const int64_t kp_, steps_;
  int64_t panel_, panel_end_, step_ = 0;
  const uint8_t* panel_bytes_;
  Ring ring_;
  PairScales scales_{};
};

// What goes on between the tile products: an expansion (or none), and the writing of earlier sums.
template <class Expand>
struct SideWork {
  Expand* expander;  // nullptr: no expansion in this pass
  PendingSums& pending;
  const LinearCall& call;

  template <int Slot, int Slots>
  inline void slot() {
    if (expander) expander->template part<Slot, Slots>();
    pending.advance(call);
  }
  inline void end_step() {
    if (!expander) return;
    expander->end_step();
    if (expander->done()) expander = nullptr;
  }
};

template <class F>
class Worker {
 public:
  explicit Worker(const LinearCall& call)
      : call_(call), plan_(call.weight->k(), call.rows), ring_base_(call.scratch),
        sums_(reinterpret_cast<int32_t*>(call.scratch + plan_.ring_bytes())),
        carried_(reinterpret_cast<double*>(call.scratch + plan_.ring_bytes() + plan_.sums_bytes())),
        expander_(*call.weight, call.panel_begin, call.panel_end, plan_, call.scratch), ring_(ring_base_, plan_.ring, 0) {}

  void run() {
    for (int64_t step = 0; step < kAhead && !expander_.done(); ++step) {
      expander_.template part<0, 1>();
      expander_.end_step();
    }
    for (int64_t panel = call_.panel_begin; panel < call_.panel_end; ++panel)
      for (int64_t chunk = 0; chunk < plan_.chunks; ++chunk) run_job(panel, chunk);
    pending_.finish(call_);
  }

 private:
  void run_job(int64_t panel, int64_t chunk) {
    const int64_t steps = plan_.steps_of(chunk), tile_bytes = plan_.steps * kStepBytes;
    const uint8_t* const a = call_.prepared + row_scales_bytes(call_.rows) + chunk * plan_.chunk_steps * kStepBytes;
    const int64_t in_carry = chunk % plan_.chunks_per_carry;
    const bool last = chunk + 1 == plan_.chunks || in_carry + 1 == plan_.chunks_per_carry;
    for (int64_t tile = 0; tile < plan_.tiles; tile += 2) {
      const bool two = tile + 1 < plan_.tiles;
      int32_t* const sums0 = sums_ + (plan_.chunks > 1 ? tile * kSums : 0);
      int32_t* const sums1 = two ? sums0 + kSums : nullptr;
      SideWork<Expander<F>> side{tile == 0 && !expander_.done() ? &expander_ : nullptr, pending_, call_};
      pending_.spread(steps * (two ? 8 : 4));
      order_memory();
      load_sums(in_carry == 0, sums0, two ? sums1 : sums0);
      if (two)
        multiply_two(a + tile * tile_bytes, a + (tile + 1) * tile_bytes, ring_, steps, side);
      else
        multiply_one(a + tile * tile_bytes, ring_, steps, side);
      pending_.finish(call_);
      store_sums(sums0, sums1);
      if (last) pending_ = wait(panel, chunk, tile, sums0);
    }
    for (int64_t step = 0; step < steps; ++step) ring_.advance();
  }

  PendingSums wait(int64_t panel, int64_t chunk, int64_t tile, const int32_t* sums) const {
    const int64_t column = panel * kPanel, row = tile * kTileRows;
    const int64_t columns = call_.weight->n() - column, rows = call_.rows - row;
    PendingSums pending;
    pending.sums = sums;
    pending.rows = rows < 2 * kTileRows ? rows : 2 * kTileRows;
    pending.s = reinterpret_cast<const float*>(call_.prepared) + row;
    pending.out = call_.out + row * call_.ldo + column;
    pending.carried = carried_ + row * kPanel;
    pending.d = reinterpret_cast<const float*>(call_.weight->panel(panel) + F::row_scale_offset(plan_.kp));
    pending.bias = call_.weight->bias() ? call_.weight->bias() + column : nullptr;
    pending.mask = columns >= kPanel ? __mmask16(0xffff) : __mmask16((1u << columns) - 1);
    pending.add_carried = chunk >= plan_.chunks_per_carry;
    pending.carry = chunk + 1 < plan_.chunks;
    return pending;
  }

  const LinearCall& call_;
  const Plan plan_;
  uint8_t* const ring_base_;
  int32_t* const sums_;
  double* const carried_;
  Expander<F> expander_;
  Ring ring_;  // where the present job's weights begin
  PendingSums pending_;
};

}  // namespace

int64_t integer_scratch_bytes_amx(const PackedWeight& weight, int64_t rows) {
  return Plan(weight.k(), rows).scratch_bytes();
}

void integer_linear_amx(const LinearCall& call) {
  const TileConfig tiles;
  visit_int_format(call.weight->format(), [&](auto f) { Worker<decltype(f)>(call).run(); });
}

}  // namespace octavo
