// Between linear.cpp and the kernels of each instruction set: the layout of prepared rows and the entry points.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "linear/linear.h"
#include "linear/wide_norms.h"

namespace octavo {

constexpr int kTileRows = 16;         // rows of an AMX tile
constexpr int64_t kTileBytes = 1024;  // of 64 each

// What an output counts of an exact sum: how many times it holds this, rounded down. Less than a hundredth of what the
// rounding of activations moves a sum by, and such counts fit 32 bits, where the sums of AMX tiles would have to be doubles.
constexpr int64_t kSumUnit = 256;

// Whether sums over k inputs of a format have counts of 32 bits.
template <class F>
constexpr bool counts_are_narrow(int64_t k) {
  return k * F::kLimit < (int64_t{1} << 31) * kSumUnit / static_cast<int64_t>(kActivationLimit);
}

// From this many rows on an AMX machine multiplies tiles; below, vectors. Both give the same bits.
constexpr int64_t kAmxMinRows = 5;
inline bool integer_tiles(Isa isa, int64_t rows) { return isa == Isa::kAmx && rows >= kAmxMinRows; }

// The same for the others: from this many rows on they expand the weights to 16 bits; below, they multiply their codes.
constexpr int64_t kAvx2WideRows = 3, kAvx512WideRows = 5;
inline bool wide_rows(Isa isa, int64_t rows) {
  return isa != Isa::kAmx && rows >= (isa == Isa::kAvx2 ? kAvx2WideRows : kAvx512WideRows);
}

inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

inline int64_t row_scales_bytes(int64_t rows) { return round_up(rows, kTileRows) * 4; }

// kA14 begins with one float scale s per row (padded to whole tiles), then the rows in one of five layouts.
//
// For AVX512 vectors, per row: planes ah[kp], al[kp] (int8, a = 128*ah + al), then int32 sums of the planes over groups, in the
// forms that the kernels add: S<<16 and -128*S for groups of 32 and of 16, each for the high and the low plane.
struct VectorRow {
  int64_t kp;
  explicit VectorRow(int64_t k) : kp(padded_k(k)) {}
  int64_t bytes() const { return round_up(2 * kp + 4 * (4 * kp / 32 + 4 * kp / 16), 64); }
  const int8_t* plane(const uint8_t* row, int low) const { return reinterpret_cast<const int8_t*>(row) + low * kp; }
  // Sums over groups of `group` of the plane: shifted (S<<16), or negated (-128*S).
  int64_t sums_offset(int group, bool negated, int low) const {
    const int64_t first = group == 32 ? 0 : 4 * (kp / 32);
    return 2 * kp + 4 * (first + ((negated ? 2 : 0) + low) * (kp / group));
  }
  const int32_t* sums(const uint8_t* row, int group, bool negated, int low) const {
    return reinterpret_cast<const int32_t*>(row + sums_offset(group, negated, low));
  }
};

struct LinearCall;

// For AVX2 with few rows, per row: per 4 inputs their high plane and their low plane (int8, a = 128*ah + al); int16 a[kp];
// int32 sums of a over groups of 16, then of 32; sums of each plane over groups of 32, in the forms that kernels of 4-bit codes
// add: per group int32 S<<16 of both planes, then (-8*S) & 0xffff of both.
struct NarrowRow {
  int64_t kp;
  explicit NarrowRow(int64_t k) : kp(padded_k(k)) {}
  int64_t bytes() const { return round_up(plane_sums_offset() + 16 * (kp / 32), 64); }
  const uint8_t* planes(const uint8_t* row) const { return row; }
  int64_t values_offset() const { return 2 * kp; }
  int64_t sums_offset(int group) const { return 4 * kp + (group == 16 ? 0 : 4 * (kp / 16)); }
  int64_t plane_sums_offset() const { return 4 * kp + 4 * (kp / 16 + kp / 32); }
  const int16_t* values(const uint8_t* row) const { return reinterpret_cast<const int16_t*>(row + values_offset()); }
  const int32_t* sums(const uint8_t* row, int group) const {
    return reinterpret_cast<const int32_t*>(row + sums_offset(group));
  }
  const uint8_t* at(const LinearCall& call, int64_t row) const;
};

// For AVX2 with many rows, per row: int16 a[kp], of every four the second and the third exchanged; then the row's WideNorms.
struct WideRow {
  int64_t kp;
  explicit WideRow(int64_t k) : kp(padded_k(k)) {}
  int64_t bytes() const { return 2 * kp + WideNorms::kBytes; }
  const int16_t* values(const uint8_t* row) const { return reinterpret_cast<const int16_t*>(row); }
  int64_t norms_offset() const { return 2 * kp; }
  const int32_t* norms(const uint8_t* row) const { return reinterpret_cast<const int32_t*>(row + norms_offset()); }
  const uint8_t* at(const LinearCall& call, int64_t row) const;
};

// For AVX512 vectors with many rows: tiles of equally many rows, of which the last may lack some. Per tile, per 32 inputs, per
// row: int16 a[32], of every four the second and the third exchanged; then per row its WideNorms.
struct WideTiles {
  static constexpr int kMostRows = 24;  // sums in registers
  int64_t kp, rows, count, height;
  WideTiles(int64_t all_rows, int64_t k)
      : kp(padded_k(k)),
        rows(all_rows),
        count(rows > 0 ? (rows + kMostRows - 1) / kMostRows : 1),
        height((rows + count - 1) / count) {}
  int64_t tile_bytes() const { return height * (2 * kp + WideNorms::kBytes); }
  int64_t bytes() const { return count * tile_bytes(); }
  int64_t rows_of(int64_t tile) const { return rows - tile * height < height ? rows - tile * height : height; }
  int64_t offset(int64_t k) const { return k / 32 * height * 32 + k % 32; }  // of the first row's input k, in values
  const int16_t* values(const uint8_t* prepared, int64_t tile) const {
    return reinterpret_cast<const int16_t*>(prepared + row_scales_bytes(rows) + tile * tile_bytes());
  }
  const int32_t* norms(const uint8_t* prepared, int64_t tile, int64_t row) const {
    const int64_t at = 2 * kp * height + row * WideNorms::kBytes;
    return reinterpret_cast<const int32_t*>(prepared + row_scales_bytes(rows) + tile * tile_bytes() + at);
  }
};

// For AMX: per 16 rows, per 64 inputs: the high bytes of a (int8) as a 16 x 64 tile, then the low bytes (uint8).
inline int64_t integer_tile_bytes(int64_t k) { return kTileRows * 2 * padded_k(k); }

// kF32 (and kBf16 without bf16 products): rows of kp floats. kBf16 with AVX512-BF16: rows of kp bfloat16; with AMX: per 16
// rows, per 32 inputs, a 16 x 32 tile.
inline int64_t bf16_tile_bytes(int64_t k) { return kTileRows * 2 * padded_k(k); }

// How a machine is asked for the weights of few rows (ReadAhead).
enum class Reading {
  kTwice,  // from far ahead into the second cache, and from there into the first one
  kSoon,   // only what comes soon, for its own prefetchers follow a stream so far that asking farther ahead disturbs them
  kOnce,   // once, into the cache that suits the kernel
};

// One call of linear(): see there.
struct LinearCall {
  const PackedWeight* weight;
  const uint8_t* prepared;
  int64_t rows;
  float* out;
  int64_t ldo;
  bool accumulate;
  int64_t panel_begin, panel_end;
  uint8_t* scratch;
  const uint8_t* next;
  Reading reading;
};

inline const uint8_t* NarrowRow::at(const LinearCall& call, int64_t row) const {
  return call.prepared + row_scales_bytes(call.rows) + row * bytes();
}
inline const uint8_t* WideRow::at(const LinearCall& call, int64_t row) const {
  return call.prepared + row_scales_bytes(call.rows) + row * bytes();
}

void wide_linear_avx2(const LinearCall& call);
void narrow_linear_avx2(const LinearCall& call);
void nibble_linear_avx2(const LinearCall& call);
void wide_linear_avx512(const LinearCall& call);
void integer_linear_avx512(const LinearCall& call);
void integer_linear_amx(const LinearCall& call);
void byte_linear_avx2(const LinearCall& call);
void byte_linear_avx512(const LinearCall& call);
void float_linear_avx2(const LinearCall& call);    // kF32 and kBf16
void float_linear_avx512(const LinearCall& call);  // kF32 and kBf16
void bf16_linear_avx512bf16(const LinearCall& call);
void bf16_linear_amx(const LinearCall& call);

int64_t wide_scratch_bytes_avx2();
int64_t wide_scratch_bytes_avx512();
int64_t integer_scratch_bytes_amx();
int64_t bf16_scratch_bytes_amx();

void prepare_narrow_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_wide_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_vector_row_avx512(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_wide_row_avx512(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_integer_tile_row_amx(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_byte_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_byte_row_avx512(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_bf16_row_avx512bf16(const float* x, int64_t k, int64_t row, uint8_t* prepared);
void prepare_bf16_tile_row_amx(const float* x, int64_t k, int64_t row, uint8_t* prepared);

}  // namespace octavo
