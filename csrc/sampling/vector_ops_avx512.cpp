#include <immintrin.h>

#include "sampling/vector_ops_impl.h"

namespace octavo {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
  using F = __m512;
  using Cmp = __mmask16;
  struct Mass {
    __m512i low, high;  // int64 of lanes 0-7 and 8-15
  };

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_partial(const float* p, int lanes, float fill) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), first(lanes), p);
  }
  static void store_partial(float* p, int lanes, F v) {
    if (lanes == kLanes) {
      _mm512_storeu_ps(p, v);
    } else {
      _mm512_mask_storeu_ps(p, first(lanes), v);
    }
  }
  static F set(float v) { return _mm512_set1_ps(v); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F add_exponent(F e, F n) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(e), _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23)));
  }
  static F zero_below(F w, F floor) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(w, floor, _CMP_GE_OQ), w); }
  static float largest(F a) { return _mm512_reduce_max_ps(a); }

  static Cmp gt(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static Cmp ge(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  static Cmp eq(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static uint32_t bits(Cmp c) { return c; }

  static Mass no_mass() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
  static Mass to_mass(F w) {
    const F scaled = mul(w, set(kMassScale));
    return {_mm512_cvtps_epi64(_mm512_castps512_ps256(scaled)), _mm512_cvtps_epi64(_mm512_extractf32x8_ps(scaled, 1))};
  }
  static Mass add_mass(Mass a, Mass b) {
    return {_mm512_add_epi64(a.low, b.low), _mm512_add_epi64(a.high, b.high)};
  }
  static Mass add_mass_where(Mass a, Cmp c, Mass b) {
    return {_mm512_mask_add_epi64(a.low, static_cast<__mmask8>(c), a.low, b.low),
            _mm512_mask_add_epi64(a.high, static_cast<__mmask8>(c >> 8), a.high, b.high)};
  }
  static int64_t total(Mass a) { return _mm512_reduce_add_epi64(_mm512_add_epi64(a.low, a.high)); }

  // Whole registers are written (kPadding): a masked store of compressed lanes is slow on some machines.
  static int compress(float* out, uint32_t kept, F v) {
    _mm512_storeu_ps(out, _mm512_maskz_compress_ps(static_cast<__mmask16>(kept), v));
    return __builtin_popcount(kept);
  }
  static void compress_ids(int32_t* out, uint32_t kept, const int32_t* ids, int32_t base, int lanes) {
    const __m512i counting = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i all = ids ? _mm512_maskz_loadu_epi32(first(lanes), ids + base)
                            : _mm512_add_epi32(counting, _mm512_set1_epi32(base));
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(static_cast<__mmask16>(kept), all));
  }

 private:
  static __mmask16 first(int lanes) { return static_cast<__mmask16>((1u << lanes) - 1); }
};

}  // namespace

const VectorOps kVectorOpsAvx512 = make_vector_ops<Avx512>();

}  // namespace octavo
