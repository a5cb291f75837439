#include <immintrin.h>

#include "linear/float_rows.h"

namespace octavo {
namespace {

struct Vector256 {
  static constexpr int kVectors = 2, kRows = 4;
  using Register = __m256;
  static Register zero() { return _mm256_setzero_ps(); }
  static Register fma(Register a, Register b, Register c) { return _mm256_fmadd_ps(a, b, c); }
  static Register broadcast(const float* x) { return _mm256_broadcast_ss(x); }
  static void load_f32(const uint8_t* from, Register* to) {
    to[0] = _mm256_loadu_ps(reinterpret_cast<const float*>(from));
    to[1] = _mm256_loadu_ps(reinterpret_cast<const float*>(from) + 8);
  }
  // Pairs of inputs lie together: the first in the lower half of each 32-bit lane.
  static void load_bf16(const uint8_t* from, int64_t second, Register* to) {
    for (int half = 0; half < 2; ++half) {
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + half);
      const __m256i bits = second ? _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u)))
                                  : _mm256_slli_epi32(pairs, 16);
      to[half] = _mm256_castsi256_ps(bits);
    }
  }
  static void store(float* to, const Register* from) {
    _mm256_storeu_ps(to, from[0]);
    _mm256_storeu_ps(to + 8, from[1]);
  }
};

}  // namespace

void float_linear_avx2(const LinearCall& call) {
  if (call.weight->format() == WeightFormat::kF32) return float_panels<Vector256, false>(call);
  float_panels<Vector256, true>(call);
}

}  // namespace octavo
