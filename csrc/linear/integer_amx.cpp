// Integer formats with AMX: weights and activations as two byte planes each, four tile products, exact in int32.
//
// With w = 256*wh + wl and a = 256*ah + al (high bytes signed, low bytes unsigned) the sum over k is
// 65536*HH + 256*M + LL, HH = sum(wh*ah), M = sum(wh*al + wl*ah), LL = sum(wl*al).
//
// A thread goes through its panels, through blocks of 32 rows, and through k in steps of 64 inputs. Each step's weights are
// expanded into a small ring in L1 just before their use, again for every block: that is faster than to fetch them, once
// expanded, from L2. Tiles and vectors run at once: between the tile products of one step come the expansion of a later step
// and the scaling and writing of the block before, in small pieces.
#include "common/tile_config.h"
#include "linear/expand_avx512.h"
#include "linear/kernels.h"
#include "linear/pending_avx512.h"
#include "linear/simd512.h"

namespace octavo {
namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kStepBytes = 2 * kTileBytes;     // 64 inputs of a panel, or of 16 rows: high and low tile
constexpr int64_t kSums = 3 * kPanel * kTileRows;  // int32 of HH, M and LL
constexpr int64_t kAhead = 2;                      // steps between the expansion of weights and their use
constexpr int64_t kRing = 2 * kAhead;              // steps
// int32 holds M and LL for this many steps (2 * 128 * 255 * 64 * 512 < 2^31); longer rows go on in double, exactly.
constexpr int64_t kCarrySteps = 512;
// Rows are taken in groups whose prepared bytes stay in L2 while all panels pass by.
constexpr int64_t kRowsBytes = int64_t{768} << 10;
constexpr int64_t kCarriedBytes = 2 * kTileRows * kPanel * 8;

// A place in the ring of expanded steps.
class Ring {
 public:
  explicit Ring(uint8_t* base) : base_(base) {}
  uint8_t* at() const { return base_ + index_ * kStepBytes; }
  void advance(int64_t steps = 1) { index_ = (index_ + steps) % kRing; }

 private:
  uint8_t* base_;
  int64_t index_ = 0;
};

inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
}

// Adds `steps` steps to the sums (tiles 0-2) of 16 rows. Between the products parts of side.begin_step() are done.
template <class Side>
inline void multiply_one(const uint8_t* a, Ring b, int64_t steps, Side& side) {
  for (int64_t step = 0; step < steps; ++step, a += kStepBytes, b.advance()) {
    const uint8_t* const w = b.at();
    auto work = side.begin_step();
    _tile_loadd(4, a, 64);
    _tile_loadd(6, w, 64);
    _tile_dpbssd(0, 4, 6);
    work.template part<0, 4>();
    _tile_loadd(5, a + kTileBytes, 64);
    _tile_dpbusd(1, 5, 6);
    work.template part<1, 4>();
    _tile_loadd(7, w + kTileBytes, 64);
    _tile_dpbuud(2, 5, 7);
    work.template part<2, 4>();
    _tile_dpbsud(1, 4, 7);
    work.template part<3, 4>();
  }
}

// The same for 32 rows: tiles 0-2 and 3-5.
template <class Side>
inline void multiply_two(const uint8_t* a0, const uint8_t* a1, Ring b, int64_t steps, Side& side) {
  for (int64_t step = 0; step < steps; ++step, a0 += kStepBytes, a1 += kStepBytes, b.advance()) {
    const uint8_t* const w = b.at();
    auto work = side.begin_step();
    _tile_loadd(7, w, 64);
    _tile_loadd(6, a0, 64);
    _tile_dpbssd(0, 6, 7);
    work.template part<0, 8>();
    _tile_loadd(6, a1, 64);
    _tile_dpbssd(3, 6, 7);
    work.template part<1, 8>();
    _tile_loadd(6, a0 + kTileBytes, 64);
    _tile_dpbusd(1, 6, 7);
    work.template part<2, 8>();
    _tile_loadd(6, a1 + kTileBytes, 64);
    _tile_dpbusd(4, 6, 7);
    work.template part<3, 8>();
    _tile_loadd(7, w + kTileBytes, 64);
    _tile_dpbuud(5, 6, 7);
    work.template part<4, 8>();
    _tile_loadd(6, a0 + kTileBytes, 64);
    _tile_dpbuud(2, 6, 7);
    work.template part<5, 8>();
    _tile_loadd(6, a0, 64);
    _tile_dpbsud(1, 6, 7);
    work.template part<6, 8>();
    _tile_loadd(6, a1, 64);
    _tile_dpbsud(4, 6, 7);
    work.template part<7, 8>();
  }
}

inline void store_sums(int32_t* sums, bool two) {
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  _tile_stored(2, sums + 512, 64);
  if (!two) return;
  _tile_stored(3, sums + kSums, 64);
  _tile_stored(4, sums + kSums + 256, 64);
  _tile_stored(5, sums + kSums + 512, 64);
}

// Hands out the steps to expand in the order of their use. After the last it repeats it, to no harm.
template <class F>
class Expander {
 public:
  Expander(const LinearCall& call, int64_t steps, int64_t blocks)
      : weight_(*call.weight), steps_(steps), blocks_(blocks), panel_end_(call.panel_end), panel_(call.panel_begin),
        ring_(call.scratch) {}

  StepExpansion<F> next() {
    const StepExpansion<F> expansion(weight_.panel(panel_), 64 * steps_, step_, ring_.at());
    ring_.advance();
    if (++step_ == steps_) next_block();
    return expansion;
  }

 private:
  void next_block() {
    step_ = 0;
    if (++block_ < blocks_) return;
    block_ = 0;
    if (panel_ + 1 < panel_end_) ++panel_;
  }

  const PackedWeight& weight_;
  const int64_t steps_, blocks_, panel_end_;
  int64_t panel_, block_ = 0, step_ = 0;
  Ring ring_;
};

// What goes on between the tile products: the expansion of one step per step, and the writing of earlier sums.
template <class F>
struct SideWork {
  Expander<F>& expander;
  PendingSums& pending;
  const LinearCall& call;

  // Of one step. A value of local scope, so that it stays in registers.
  struct Step {
    StepExpansion<F> expansion;
    PendingSums& pending;
    const LinearCall& call;
    template <int Part, int Parts>
    inline void part() {
      expansion.template run<Part * kStepParts<F> / Parts, (Part + 1) * kStepParts<F> / Parts>();
      if constexpr (Part % 2 == 1) pending.advance(call);
    }
  };
  inline Step begin_step() {
    pending.begin_step();
    return {expander.next(), pending, call};
  }
};

template <class F>
class Worker {
 public:
  // For the tiles of 16 rows [tile_begin, tile_end).
  Worker(const LinearCall& call, int64_t tile_begin, int64_t tile_end)
      : call_(call), steps_(padded_k(call.weight->k()) / 64), tile_begin_(tile_begin), tile_end_(tile_end), sums_(reinterpret_cast<int32_t*>(call.scratch + kRing * kStepBytes)),
        carried_(reinterpret_cast<double*>(sums_ + 2 * kSums)), expander_(call, steps_, (tile_end - tile_begin + 1) / 2),
        ring_(call.scratch) {}

  void run() {
    for (int64_t step = 0; step < kAhead; ++step) expander_.next().template run<0, kStepParts<F>>();
    for (int64_t panel = call_.panel_begin; panel < call_.panel_end; ++panel)
      for (int64_t tile = tile_begin_; tile < tile_end_; tile += 2)
        for (int64_t step = 0; step < steps_; step += kCarrySteps) run_block(panel, tile, step);
    pending_.finish(call_);
  }

 private:
  // Up to 32 rows from tile `tile` on, for up to kCarrySteps steps from `first` on.
  void run_block(int64_t panel, int64_t tile, int64_t first) {
    const int64_t steps = steps_ - first < kCarrySteps ? steps_ - first : kCarrySteps;
    const int64_t tile_bytes = steps_ * kStepBytes;
    const uint8_t* const a = call_.prepared + row_scales_bytes(call_.rows) + tile * tile_bytes + first * kStepBytes;
    const bool two = tile + 1 < tile_end_;
    SideWork<F> side{expander_, pending_, call_};
    pending_.spread(steps);
    order_memory();
    zero_sums();
    if (two)
      multiply_two(a, a + tile_bytes, ring_, steps, side);
    else
      multiply_one(a, ring_, steps, side);
    ring_.advance(steps);
    pending_.finish(call_);
    store_sums(sums_, two);
    pending_ = wait(panel, tile, first);
  }

  PendingSums wait(int64_t panel, int64_t tile, int64_t first) const {
    const int64_t column = panel * kPanel, row = tile * kTileRows;
    const int64_t columns = call_.weight->n() - column, rows = call_.rows - row;
    PendingSums pending;
    pending.sums = sums_;
    pending.rows = rows < 2 * kTileRows ? rows : 2 * kTileRows;
    pending.s = reinterpret_cast<const float*>(call_.prepared) + row;
    pending.out = call_.out + row * call_.ldo + column;
    pending.carried = carried_;
    const float* const d = reinterpret_cast<const float*>(call_.weight->panel(panel) + F::row_scale_offset(64 * steps_));
    pending.d_low = _mm512_cvtps_pd(_mm256_loadu_ps(d));
    pending.d_high = _mm512_cvtps_pd(_mm256_loadu_ps(d + 8));
    pending.bias = call_.weight->bias() ? call_.weight->bias() + column : nullptr;
    pending.mask = first_lanes(columns);
    pending.add_carried = first > 0;
    pending.carry = first + kCarrySteps < steps_;
    return pending;
  }

  const LinearCall& call_;
  const int64_t steps_, tile_begin_, tile_end_;
  int32_t* const sums_;
  double* const carried_;
  Expander<F> expander_;
  Ring ring_;  // the next step's weights
  PendingSums pending_;
};

}  // namespace

int64_t integer_scratch_bytes_amx() { return kRing * kStepBytes + 2 * kSums * 4 + kCarriedBytes; }

void integer_linear_amx(const LinearCall& call) {
  const TileConfig config;
  const int64_t tiles = (call.rows + kTileRows - 1) / kTileRows;
  const int64_t pairs = kRowsBytes / (2 * integer_tile_bytes(call.weight->k()));
  const int64_t group = pairs > 0 ? 2 * pairs : 2;
  visit_int_format(call.weight->format(), [&](auto f) {
    for (int64_t tile = 0; tile < tiles; tile += group)
      Worker<decltype(f)>(call, tile, tile + group < tiles ? tile + group : tiles).run();
  });
}

}  // namespace octavo
