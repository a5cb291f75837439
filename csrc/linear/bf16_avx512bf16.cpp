// bfloat16 weights in products of bf16 pairs: one chain of instructions per output, k ascending, whatever the number of rows.
#include <cstring>

#include "common/prefetch.h"
#include "linear/bf16_rows.h"

namespace octavo {
namespace {

constexpr int kRows = 12;             // of a chunk: with two panels 24 sums
constexpr int64_t kLine = 64;         // bytes of a panel's 16 columns of two inputs
constexpr int64_t kPrefetch = 4096;   // bytes ahead, where panels are read once

// Rows [row, row + Rows) times Panels panels. What lies `ahead` bytes behind the weights is fetched into the second cache
// meanwhile, unless that is 0.
template <int Rows, int Panels>
void multiply(const LinearCall& call, int64_t panel, int64_t row, int64_t ahead) {
  const int64_t kp = padded_k(call.weight->k()), stride = 2 * kp;
  const uint8_t* const x = call.prepared + row * stride;
  const uint8_t* weights[Panels];
  __m512 sums[Rows][Panels];
  for (int p = 0; p < Panels; ++p) {
    weights[p] = call.weight->panel(panel + p);
    for (int r = 0; r < Rows; ++r) sums[r][p] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < kp / 2; ++i) {
    __m512bh w[Panels];
    for (int p = 0; p < Panels; ++p) {
      if (ahead) prefetch_far(weights[p] + i * kLine + ahead);
      w[p] = (__m512bh)_mm512_loadu_si512(weights[p] + i * kLine);
    }
    for (int r = 0; r < Rows; ++r) {
      int32_t pair;
      std::memcpy(&pair, x + r * stride + 4 * i, sizeof pair);
      const __m512bh inputs = (__m512bh)_mm512_set1_epi32(pair);
      for (int p = 0; p < Panels; ++p) sums[r][p] = _mm512_dpbf16_ps(sums[r][p], w[p], inputs);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int p = 0; p < Panels; ++p) write_columns(call, row + r, (panel + p) * kPanel, sums[r][p]);
}

template <int Panels, int Rows = kRows>
void multiply_rows(const LinearCall& call, int64_t panel, int64_t row, int64_t rows, int64_t ahead) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return multiply_rows<Panels, Rows - 1>(call, panel, row, rows, ahead);
  }
  multiply<Rows, Panels>(call, panel, row, ahead);
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
