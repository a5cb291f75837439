// Linear layers: out[rows, n] = x[rows, k] * W[n, k]^T (+ bias) (+ out).
//
// Integer formats compute sum(w_int * a) exactly, with a the 14-bit integers of the prepared row, and then, in float32, out =
// floor(sum / 256) * (s * (256 * D)). With 8-bit integers (kA8) sums over 32 inputs are exact, and their
// scales are applied in float32 in the order of k (byte_rows.h). Either way the bits are the same on every instruction
// set, for every number of rows and every split over threads. The float formats add in one fixed order of k, so that
// their bits depend on the instruction set only.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "linear/packed_weight.h"

namespace octavo {

constexpr float kActivationLimit = 8064.0f;    // |a| of a 14-bit activation
constexpr float kActivationMinimum = 1e-30f;   // a row whose values are all smaller counts as zeros

// Bytes of the prepared rows, for any instruction set. The buffer must be aligned to 64 bytes.
int64_t prepared_bytes(InputKind kind, int64_t rows, int64_t k);

// Prepares row `row` of `rows`. x: k floats. Different threads may prepare different rows at once. For kA14 and
// kA8 a row that holds an infinity or a NaN makes all its outputs NaN.
void prepare_row(Isa isa, InputKind kind, const float* x, int64_t k, int64_t row, int64_t rows, void* prepared);

// Bytes of one thread's scratch (aligned to 64) for up to `rows` rows of this kind.
int64_t scratch_bytes(Isa isa, InputKind kind, int64_t rows);

// One thread's share: panels [panel_begin, panel_end) for all rows. kind: one of the weight's format. prepared: by the
// same isa, kind and number of rows, all rows complete. out: row r begins at out + r * ldo, n columns are written.
// accumulate: adds to what is there. next: the weights that this thread will read after these, to be prefetched; or
// nullptr.
void linear(Isa isa, InputKind kind, const PackedWeight& weight, const void* prepared, int64_t rows, float* out,
            int64_t ldo, bool accumulate, int64_t panel_begin, int64_t panel_end, void* scratch, const uint8_t* next);

// The row of a tied embedding: out[k] = weight[token] * scale.
void embed_row(const PackedWeight& weight, int64_t token, float scale, float* out);

}  // namespace octavo
