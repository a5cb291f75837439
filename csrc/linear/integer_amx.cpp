// Integer formats with AMX: weights and activations as two byte planes each, four tile products, exact in int32.
//
// With w = 256*wh + wl and a = 256*ah + al (high bytes signed, low bytes unsigned) the sum over k is
// 65536*HH + 256*M + LL, HH = sum(wh*ah), M = sum(wh*al + wl*ah), LL = sum(wl*al).
//
// A thread goes through its panels, through blocks of 32 rows, and through k in steps of 64 inputs. Tiles and vectors run at
// once: between the tile products of one step come the expansion of a later one's weights and the scaling and writing of the
// block before, in small pieces.
#include "common/tile_config.h"
#include "linear/expand_avx512.h"
#include "linear/kernels.h"
#include "linear/pending_avx512.h"

namespace octavo {
namespace {

constexpr int64_t kAhead = 2;            // steps between the expansion of weights and their use
constexpr int64_t kPlaces = 2 * kAhead;  // of expanded steps
constexpr int64_t kSums = 2 * kTileRows * kRowSums;  // int32, of a block of rows
// int32 holds M and LL for this many steps (2 * 128 * 255 * 64 * 512 < 2^31); longer rows go on in double, exactly.
constexpr int64_t kCarrySteps = 512;
// Rows are taken in groups whose prepared bytes stay in L2 while all panels pass by.
constexpr int64_t kRowsBytes = int64_t{768} << 10;
constexpr int64_t kCarriedBytes = 2 * kTileRows * kPanel * 8;

inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
}

// Adds the products of a step's weights and 16 rows to the sums (tiles 0-2). Parts of `work` are done between them.
template <class Work>
[[gnu::always_inline]] inline void multiply_one(const uint8_t* a, const uint8_t* w, Work work) {
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

// The same for 32 rows: tiles 0-2 and 3-5. Rows are loaded once, past the first cache, which they would else empty of the
// expanded weights.
template <class Work>
[[gnu::always_inline]] inline void multiply_two(const uint8_t* a0, const uint8_t* a1, const uint8_t* w, Work work) {
  _tile_stream_loadd(6, a0, 64);
  _tile_loadd(7, w, 64);
  _tile_dpbssd(0, 6, 7);
  work.template part<0, 8>();
  _tile_loadd(7, w + kTileBytes, 64);
  _tile_dpbsud(1, 6, 7);
  work.template part<1, 8>();
  _tile_stream_loadd(6, a0 + kTileBytes, 64);
  _tile_dpbuud(2, 6, 7);
  work.template part<2, 8>();
  _tile_loadd(7, w, 64);
  _tile_dpbusd(1, 6, 7);
  work.template part<3, 8>();
  _tile_stream_loadd(6, a1 + kTileBytes, 64);
  _tile_dpbusd(4, 6, 7);
  work.template part<4, 8>();
  _tile_loadd(7, w + kTileBytes, 64);
  _tile_dpbuud(5, 6, 7);
  work.template part<5, 8>();
  _tile_stream_loadd(6, a1, 64);
  _tile_dpbsud(4, 6, 7);
  work.template part<6, 8>();
  _tile_loadd(7, w, 64);
  _tile_dpbssd(3, 6, 7);
  work.template part<7, 8>();
}

inline void store_sums(int32_t* sums, bool two) {
  constexpr int64_t kStride = kRowSums * 4;
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kPanel, kStride);
  _tile_stored(2, sums + 2 * kPanel, kStride);
  if (!two) return;
  sums += kTileRows * kRowSums;
  _tile_stored(3, sums, kStride);
  _tile_stored(4, sums + kPanel, kStride);
  _tile_stored(5, sums + 2 * kPanel, kStride);
}

// The weights of a thread's panels, each step of them expanded shortly before its use, anew for each block of rows: what is
// written then is still in the first cache when it is read.
template <class F>
class ExpandedSteps {
 public:
  ExpandedSteps(const LinearCall& call, int64_t steps, int64_t blocks)
      : weight_(*call.weight), ahead_(call), places_(call.scratch), steps_(steps), blocks_(blocks), panel_(call.panel_begin),
        last_panel_(call.panel_end - 1) {
    for (int64_t step = 0; step < kAhead; ++step) next().template run<0, kStepParts<F>>();
  }

  // The next step to expand, in the order of their use; behind the last one it comes again, to no harm.
  [[gnu::always_inline]] StepExpansion<F> next() {
    const StepExpansion<F> expansion(weight_.panel(panel_), 64 * steps_, step_, ahead_, place(written_++));
    if (++step_ == steps_) next_block();
    return expansion;
  }
  // The next step to use.
  const uint8_t* read() { return place(read_++); }

 private:
  uint8_t* place(uint64_t count) const { return places_ + count % kPlaces * kStepBytes; }
  void next_block() {
    step_ = 0;
    if (++block_ < blocks_) return;
    block_ = 0;
    if (panel_ < last_panel_) ++panel_;
  }

  const PackedWeight& weight_;
  const ReadAhead ahead_;
  uint8_t* const places_;
  const int64_t steps_, blocks_;
  int64_t panel_;
  const int64_t last_panel_;
  int64_t block_ = 0, step_ = 0;
  uint64_t written_ = 0, read_ = 0;
};

// What goes on between the products of a step: the expansion of a later one and the writing of earlier sums. A value of
// local scope, so that it stays in registers.
template <class F>
struct SideWork {
  StepExpansion<F> expansion;
  PendingSums& pending;
  const LinearCall& call;
  template <int Part, int Parts>
  [[gnu::always_inline]] inline void part() {
    expansion.template run<Part * kStepParts<F> / Parts, (Part + 1) * kStepParts<F> / Parts>();
    if constexpr (Part % 2 == 1) pending.advance(call);
  }
};

template <class F>
class Worker {
 public:
  // For the tiles of 16 rows [tile_begin, tile_end).
  Worker(const LinearCall& call, int64_t tile_begin, int64_t tile_end)
      : call_(call), steps_(padded_k(call.weight->k()) / 64), tile_begin_(tile_begin), tile_end_(tile_end),
        sums_(reinterpret_cast<int32_t*>(call.scratch + kPlaces * kStepBytes)),
        carried_(reinterpret_cast<double*>(sums_ + kSums)), expanded_(call, steps_, (tile_end - tile_begin + 1) / 2) {}

  void run() {
    PendingSums pending;
    for (int64_t panel = call_.panel_begin; panel < call_.panel_end; ++panel)
      for (int64_t tile = tile_begin_; tile < tile_end_; tile += 2)
        for (int64_t step = 0; step < steps_; step += kCarrySteps) pending = run_block(panel, tile, step, pending);
    pending.finish(call_);
  }

 private:
  // Up to 32 rows from tile `tile` on, for up to kCarrySteps steps from `first` on. Writes the sums of the block before.
  PendingSums run_block(int64_t panel, int64_t tile, int64_t first, PendingSums pending) {
    const int64_t steps = steps_ - first < kCarrySteps ? steps_ - first : kCarrySteps, tile_bytes = steps_ * kStepBytes;
    const uint8_t* a = call_.prepared + row_scales_bytes(call_.rows) + tile * tile_bytes + first * kStepBytes;
    const bool two = tile + 1 < tile_end_;
    pending.spread(steps);
    order_memory();
    zero_sums();
    for (int64_t step = 0; step < steps; ++step, a += kStepBytes) {
      pending.begin_step();
      const SideWork<F> work{expanded_.next(), pending, call_};
      if (two)
        multiply_two(a, a + tile_bytes, expanded_.read(), work);
      else
        multiply_one(a, expanded_.read(), work);
    }
    pending.finish(call_);
    store_sums(sums_, two);
    return wait(panel, tile, first);
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
    pending.unit_value = unit_values(call_.weight->panel(panel) + F::row_scale_offset(64 * steps_));
    pending.bias = call_.weight->bias() ? call_.weight->bias() + column : nullptr;
    pending.mask = first_lanes(columns);
    pending.narrow = counts_are_narrow<F>(64 * steps_);
    pending.add_carried = first > 0;
    pending.carry = first + kCarrySteps < steps_;
    return pending;
  }

  const LinearCall& call_;
  const int64_t steps_, tile_begin_, tile_end_;
  int32_t* const sums_;
  double* const carried_;
  ExpandedSteps<F> expanded_;
};

}  // namespace

int64_t integer_scratch_bytes_amx() { return kPlaces * kStepBytes + kSums * 4 + kCarriedBytes; }

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
