#include <immintrin.h>

#include "rows/row_kernels_impl.h"

namespace octavo {
namespace {

struct Avx512 {
  static constexpr int64_t kLanes = 16;
  using F = __m512;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fms(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  // a, or what has its sign and the magnitude `limit` where that is smaller.
  static F within(F a, F limit) { return _mm512_range_ps(a, limit, 0b0010); }
  // Shifts the low bits of a float into the exponent.
  static F exponent(F a) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23)); }
};

}  // namespace

extern const RowKernels kRowKernelsAvx512;
const RowKernels kRowKernelsAvx512 = make_row_kernels<Avx512>();

}  // namespace octavo
