#include <immintrin.h>

#include "rows/row_kernels_impl.h"

namespace octavo {
namespace {

struct Avx2 {
  static constexpr int64_t kLanes = 8;
  using F = __m256;

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F a) { _mm256_storeu_ps(p, a); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fms(F a, F b, F c) { return _mm256_fmsub_ps(a, b, c); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  // a, or what has its sign and the magnitude `limit` where that is smaller.
  static F within(F a, F limit) { return _mm256_max_ps(_mm256_min_ps(a, limit), sub(_mm256_setzero_ps(), limit)); }
  // Shifts the low bits of a float into the exponent.
  static F exponent(F a) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23)); }
};

}  // namespace

extern const RowKernels kRowKernelsAvx2;
const RowKernels kRowKernelsAvx2 = make_row_kernels<Avx2>();

}  // namespace octavo
