// Packing one panel: between packed_weight.cpp and pack_avx2.cpp.
#pragma once

#include <cstdint>

#include "linear/formats.h"

namespace octavo {

// Rows of a file's tensor: see PackedWeight::pack.
struct PackSource {
  TensorKind kind;
  const uint8_t* raw;
  int64_t n, k;
  const int32_t* row_order;
};

// Bytes of scratch (aligned to 64) that one thread needs.
int64_t pack_scratch_bytes(int64_t k);

// Packs panel `panel` into `to`. Returns -1, or the first row that holds a scale or a value that is not finite.
int64_t pack_panel_avx2(WeightFormat format, const PackSource& source, int64_t panel, uint8_t* to, uint8_t* scratch);

}  // namespace octavo
