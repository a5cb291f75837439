// The 512-bit intrinsics and masks of lanes, without the false alarms of GCC 12 about the undefined operands inside its own header.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace octavo {
namespace {

// The first `count` lanes of 16.
inline __mmask16 first_lanes(int64_t count) {
  return count >= 16 ? __mmask16(0xffff) : count <= 0 ? __mmask16(0) : __mmask16((1u << count) - 1);
}

}  // namespace
}  // namespace octavo
