#include "linear/linear.h"

#include <algorithm>
#include <cstring>

#include "linear/byte_rows.h"
#include "linear/kernels.h"

namespace octavo {

int64_t prepared_bytes(InputKind kind, int64_t rows, int64_t k) {
  const int64_t kp = padded_k(k), tiles = round_up(rows, kTileRows) / kTileRows;
  if (kind == InputKind::kF32) return rows * kp * 4;
  if (kind == InputKind::kBf16) {
    const int64_t as_tiles = tiles * bf16_tile_bytes(k), as_floats = rows * kp * 4;
    return as_tiles > as_floats ? as_tiles : as_floats;
  }
  if (kind == InputKind::kA8) return std::max(ByteTiles512(rows, k).bytes(), ByteTiles256(rows, k).bytes());
  const int64_t each = std::max({VectorRow(k).bytes(), NarrowRow(k).bytes(), WideRow(k).bytes()});
  return row_scales_bytes(rows) + std::max({tiles * integer_tile_bytes(k), rows * each, WideTiles(rows, k).bytes()});
}

void prepare_row(Isa isa, InputKind kind, const float* x, int64_t k, int64_t row, int64_t rows, void* prepared) {
  uint8_t* const base = static_cast<uint8_t*>(prepared);
  if (kind == InputKind::kA14) {
    if (integer_tiles(isa, rows)) return prepare_integer_tile_row_amx(x, k, row, rows, base);
    const bool avx2 = isa == Isa::kAvx2, wide = wide_rows(isa, rows);
    const auto prepare = avx2 ? (wide ? prepare_wide_row_avx2 : prepare_narrow_row_avx2)
                              : (wide ? prepare_wide_row_avx512 : prepare_vector_row_avx512);
    return prepare(x, k, row, rows, base);
  }
  if (kind == InputKind::kA8)
    return (isa == Isa::kAvx2 ? prepare_byte_row_avx2 : prepare_byte_row_avx512)(x, k, row, rows, base);
  if (kind == InputKind::kBf16 && isa == Isa::kAmx) return prepare_bf16_tile_row_amx(x, k, row, base);
  if (kind == InputKind::kBf16 && isa == Isa::kAvx512Bf16) return prepare_bf16_row_avx512bf16(x, k, row, base);
  const int64_t kp = padded_k(k);
  float* const to = reinterpret_cast<float*>(base) + row * kp;
  std::memcpy(to, x, static_cast<size_t>(k) * sizeof(float));
  std::memset(to + k, 0, static_cast<size_t>(kp - k) * sizeof(float));
}

int64_t scratch_bytes(Isa isa, InputKind kind, int64_t rows) {
  const bool integers = kind == InputKind::kA14;
  if (isa != Isa::kAmx) {
    if (!integers || !wide_rows(isa, rows)) return 0;
    return isa == Isa::kAvx2 ? wide_scratch_bytes_avx2() : wide_scratch_bytes_avx512();
  }
  if (kind == InputKind::kBf16) return bf16_scratch_bytes_amx();
  return integers && integer_tiles(isa, rows) ? integer_scratch_bytes_amx() : 0;
}

void linear(Isa isa, InputKind kind, const PackedWeight& weight, const void* prepared, int64_t rows, float* out,
            int64_t ldo, bool accumulate, int64_t panel_begin, int64_t panel_end, void* scratch, const uint8_t* next) {
  if (rows <= 0 || panel_begin >= panel_end) return;
  // As measured: AMX machines have Intel's prefetchers.
  const Reading reading = isa == Isa::kAmx ? Reading::kSoon : is_zen5() ? Reading::kOnce : Reading::kTwice;
  const LinearCall call{&weight,     static_cast<const uint8_t*>(prepared), rows, out, ldo, accumulate, panel_begin,
                        panel_end,   static_cast<uint8_t*>(scratch),        next, reading};
  switch (kind) {
    case InputKind::kA8: return isa == Isa::kAvx2 ? byte_linear_avx2(call) : byte_linear_avx512(call);
    case InputKind::kA14:
      if (integer_tiles(isa, rows)) return integer_linear_amx(call);
      if (isa == Isa::kAvx2) return wide_rows(isa, rows) ? wide_linear_avx2(call) : narrow_linear_avx2(call);
      return wide_rows(isa, rows) ? wide_linear_avx512(call) : integer_linear_avx512(call);
    case InputKind::kBf16:
      if (isa == Isa::kAmx) return bf16_linear_amx(call);
      if (isa == Isa::kAvx512Bf16) return bf16_linear_avx512bf16(call);
      [[fallthrough]];
    case InputKind::kF32: return isa == Isa::kAvx2 ? float_linear_avx2(call) : float_linear_avx512(call);
  }
}

void embed_row(const PackedWeight& weight, int64_t token, float scale, float* out) {
  weight.dequantize_row(token, scale, out);
}

}  // namespace octavo
