// Between linear.cpp and the kernels of each instruction set: the layout of prepared rows and the entry points.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "linear/linear.h"

namespace octavo {

constexpr int kTileRows = 16;  // rows of an AMX tile

// From this many rows on an AMX machine multiplies tiles; below, vectors. Both give the same bits.
constexpr int64_t kAmxMinRows = 5;
inline bool integer_tiles(Isa isa, int64_t rows) { return isa == Isa::kAmx && rows >= kAmxMinRows; }

// The same for AVX2: from this many rows on it expands the weights to 16 bits; below, it multiplies their codes.
constexpr int64_t kAvx2WideRows = 3;
inline bool wide_rows(Isa isa, int64_t rows) { return isa == Isa::kAvx2 && rows >= kAvx2WideRows; }

inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// kA14 begins with one float scale s per row (padded to whole tiles), then the rows in one of four layouts.
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
// int32 sums of a over groups of 16, then of 32.
struct NarrowRow {
  int64_t kp;
  explicit NarrowRow(int64_t k) : kp(padded_k(k)) {}
  int64_t bytes() const { return round_up(4 * kp + 4 * (kp / 16 + kp / 32), 64); }
  const uint8_t* planes(const uint8_t* row) const { return row; }
  int64_t values_offset() const { return 2 * kp; }
  int64_t sums_offset(int group) const { return 4 * kp + (group == 16 ? 0 : 4 * (kp / 16)); }
  const int16_t* values(const uint8_t* row) const { return reinterpret_cast<const int16_t*>(row + values_offset()); }
  const int32_t* sums(const uint8_t* row, int group) const {
    return reinterpret_cast<const int32_t*>(row + sums_offset(group));
  }
  const uint8_t* at(const LinearCall& call, int64_t row) const;
};

// For AVX2 with many rows, per row: int16 a[kp], then for runs of 16, 32, ... 256 inputs the largest sum of |a| over one.
struct WideRow {
  static constexpr int kNorms = 5;
  static constexpr int64_t norm_length(int i) { return int64_t{16} << i; }
  int64_t kp;
  explicit WideRow(int64_t k) : kp(padded_k(k)) {}
  int64_t bytes() const { return 2 * kp + 64; }
  const int16_t* values(const uint8_t* row) const { return reinterpret_cast<const int16_t*>(row); }
  int64_t norms_offset() const { return 2 * kp; }
  const int32_t* norms(const uint8_t* row) const { return reinterpret_cast<const int32_t*>(row + norms_offset()); }
  const uint8_t* at(const LinearCall& call, int64_t row) const;
};

// For tiles: per 16 rows, per 64 inputs: the high bytes of a (int8) as a 16 x 64 tile, then the low bytes (uint8).
inline int64_t integer_tile_bytes(int64_t k) { return kTileRows * 2 * padded_k(k); }

inline int64_t row_scales_bytes(int64_t rows) { return round_up(rows, kTileRows) * 4; }

// kF32 (and kBf16 without bf16 products): rows of kp floats. kBf16 with AVX512-BF16: rows of kp bfloat16; with AMX: per 16
// rows, per 32 inputs, a 16 x 32 tile.
inline int64_t bf16_tile_bytes(int64_t k) { return kTileRows * 2 * padded_k(k); }

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
};

inline const uint8_t* NarrowRow::at(const LinearCall& call, int64_t row) const {
  return call.prepared + row_scales_bytes(call.rows) + row * bytes();
}
inline const uint8_t* WideRow::at(const LinearCall& call, int64_t row) const {
  return call.prepared + row_scales_bytes(call.rows) + row * bytes();
}

void wide_linear_avx2(const LinearCall& call);
void narrow_linear_avx2(const LinearCall& call);
void integer_linear_avx512(const LinearCall& call);
void integer_linear_amx(const LinearCall& call);
void float_linear_avx2(const LinearCall& call);    // kF32 and kBf16
void float_linear_avx512(const LinearCall& call);  // kF32 and kBf16
void bf16_linear_avx512bf16(const LinearCall& call);
void bf16_linear_amx(const LinearCall& call);

int64_t wide_scratch_bytes_avx2();
int64_t integer_scratch_bytes_amx();
int64_t bf16_scratch_bytes_amx();

void prepare_narrow_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_wide_row_avx2(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_vector_row_avx512(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_integer_tile_row_amx(const float* x, int64_t k, int64_t row, int64_t rows, uint8_t* prepared);
void prepare_bf16_row_avx512bf16(const float* x, int64_t k, int64_t row, uint8_t* prepared);
void prepare_bf16_tile_row_amx(const float* x, int64_t k, int64_t row, uint8_t* prepared);

}  // namespace octavo
