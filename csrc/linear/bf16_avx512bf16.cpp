// bfloat16 weights in products of bf16 pairs: one chain of instructions per output, k ascending, whatever the number of rows.
#include <cstring>
#include <utility>

#include "common/prefetch.h"
#include "linear/bf16_rows.h"

namespace octavo {
namespace {

constexpr int kRows = 12;             // of a chunk: with two panels 24 sums
constexpr int64_t kLine = 64;         // bytes of a panel's 16 columns of two inputs
constexpr int64_t kPrefetch = 4096;   // bytes ahead, where panels are read once

// The sums of a row and 16 columns of each panel.
template <int Panels>
struct RowSums {
  __m512 sums[Panels] = {};

  // The products with inputs `pair`; weights: of each panel.
  [[gnu::always_inline]] inline void add(const uint8_t* pair, const __m512bh* weights) {
    int32_t bits;
    std::memcpy(&bits, pair, sizeof bits);
    const __m512bh inputs = (__m512bh)_mm512_set1_epi32(bits);
    sums[0] = _mm512_dpbf16_ps(sums[0], weights[0], inputs);
    if constexpr (Panels == 2) sums[1] = _mm512_dpbf16_ps(sums[1], weights[1], inputs);
  }
  [[gnu::always_inline]] inline void write(const LinearCall& call, int64_t row, int64_t column) const {
    write_columns(call, row, column, sums[0]);
    if constexpr (Panels == 2) write_columns(call, row, column + kPanel, sums[1]);
  }
};

// Rows row + R... times Panels panels. What lies `ahead` bytes behind the weights is fetched into the second cache meanwhile,
// unless that is 0. A pack instead of loops, for which GCC 12 writes each sum to memory after each product.
template <int Panels, int... R>
void multiply(const LinearCall& call, int64_t panel, int64_t row, int64_t ahead, std::integer_sequence<int, R...>) {
  static_assert(Panels == 1 || Panels == 2);
  const int64_t kp = padded_k(call.weight->k()), stride = 2 * kp;
  const uint8_t* const x = call.prepared + row * stride;
  const uint8_t* const weights[] = {call.weight->panel(panel), call.weight->panel(panel + Panels - 1)};
  RowSums<Panels> sums[sizeof...(R)];
  for (int64_t i = 0; i < kp / 2; ++i) {
    if (ahead) {
      prefetch_far(weights[0] + i * kLine + ahead);
      if (Panels == 2) prefetch_far(weights[1] + i * kLine + ahead);
    }
    const __m512bh w[] = {(__m512bh)_mm512_loadu_si512(weights[0] + i * kLine),
                          (__m512bh)_mm512_loadu_si512(weights[1] + i * kLine)};
    (sums[R].add(x + R * stride + 4 * i, w), ...);
  }
  (sums[R].write(call, row + R, panel * kPanel), ...);
}

template <int Panels, int Rows = kRows>
void multiply_rows(const LinearCall& call, int64_t panel, int64_t row, int64_t rows, int64_t ahead) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return multiply_rows<Panels, Rows - 1>(call, panel, row, rows, ahead);
  }
  multiply<Panels>(call, panel, row, ahead, std::make_integer_sequence<int, Rows>{});
}

// All rows times some panels, while the panels after them are fetched.
template <int Panels>
void multiply_chunks(const LinearCall& call, int64_t panel) {
  const int64_t next = Panels * padded_k(call.weight->k()) / 2 * kLine;
  for (int64_t row = 0; row < call.rows; row += kRows)
    multiply_rows<Panels>(call, panel, row, call.rows - row, row == 0 ? next : 0);
}

}  // namespace

void prepare_bf16_row_avx512bf16(const float* x, int64_t k, int64_t row, uint8_t* prepared) {
  round_row(x, k, prepared + row * 2 * padded_k(k), 64);
}

void bf16_linear_avx512bf16(const LinearCall& call) {
  int64_t panel = call.panel_begin;
  if (call.rows <= kRows) {  // bound by reads: one stream through all panels
    for (; panel < call.panel_end; ++panel) multiply_rows<1>(call, panel, 0, call.rows, kPrefetch);
    return;
  }
  for (; panel + 2 <= call.panel_end; panel += 2) multiply_chunks<2>(call, panel);
  if (panel < call.panel_end) multiply_chunks<1>(call, panel);
}

}  // namespace octavo
