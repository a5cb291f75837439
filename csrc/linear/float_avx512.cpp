#include "linear/simd512.h"

#include "linear/float_rows.h"

namespace octavo {
namespace {

struct Vector512 {
  static constexpr int kVectors = 1, kRows = 12;
  using Register = __m512;
  static Register zero() { return _mm512_setzero_ps(); }
  static Register fma(Register a, Register b, Register c) { return _mm512_fmadd_ps(a, b, c); }
  static Register broadcast(const float* x) { return _mm512_set1_ps(*x); }
  static void load_f32(const uint8_t* from, Register* to) { to[0] = _mm512_loadu_ps(from); }
  // Pairs of inputs lie together: the first in the lower half of each 32-bit lane.
  static void load_bf16(const uint8_t* from, int64_t second, Register* to) {
    const __m512i pairs = _mm512_loadu_si512(from);
    const __m512i bits = second ? _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u)))
                                : _mm512_slli_epi32(pairs, 16);
    to[0] = _mm512_castsi512_ps(bits);
  }
  static void store(float* to, const Register* from) { _mm512_storeu_ps(to, from[0]); }
};

}  // namespace

void float_linear_avx512(const LinearCall& call) {
  if (call.weight->format() == WeightFormat::kF32) return float_panels<Vector512, false>(call);
  float_panels<Vector512, true>(call);
}

}  // namespace octavo
