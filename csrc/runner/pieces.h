// How much of a step a thread keeps for itself, and how much it takes at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/isa.h"

namespace octavo {

constexpr int64_t kOwnAttentionPieces = 16, kSharedAttentionPieces = 4;  // of a thread's share, by who keeps the rows
constexpr int64_t kWorthPieces = 2;  // of a linear: with fewer left a thread is done before another has fetched one of them
constexpr int64_t kCachedRows = 64;  // whose values between two attentions stay in a core's own cache

// A thread that keeps rows has at least so many, for it expands all weights by itself: AVX512 does so beside the products of
// up to 24 rows, the others once per 32 rows or more.
inline int64_t least_own_rows(Isa isa) { return isa == Isa::kAvx2 || isa == Isa::kAmx ? 32 : 16; }

// Rows are dealt out in multiples of it: of a tile's.
inline int64_t row_grain(Isa isa) { return isa == Isa::kAmx ? 16 : 1; }

// A thread takes its own `rows` in pieces of at most so many, a cacheful or less: of equal sizes, for a ragged one takes
// nearly as long as a whole one.
inline int64_t piece_rows(int64_t rows, int64_t grain) {
  const int64_t pieces = (rows + kCachedRows - 1) / kCachedRows;
  return (rows + pieces * grain - 1) / (pieces * grain) * grain;
}

// A linear reads at most so many rows at once, however many a step has: a cacheful of a thread's own, or, where threads
// do not keep rows, all of them.
inline int64_t rows_at_work(Isa isa, int threads) { return std::max(kCachedRows, least_own_rows(isa) * threads); }

// Products in a piece of a linear's columns: some 20 us, beside which what a call takes to begin is nothing.
inline int64_t piece_products(Isa isa) { return int64_t{1} << (isa == Isa::kAvx2 ? 20 : isa == Isa::kAmx ? 23 : 22); }

}  // namespace octavo
