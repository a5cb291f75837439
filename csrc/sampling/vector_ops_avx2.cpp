#include <immintrin.h>

#include "sampling/vector_ops_impl.h"

namespace octavo {
namespace {

// For each byte of a mask: its set bits, ascending.
struct SetLanes {
  uint8_t lanes[256][8] = {};
  constexpr SetLanes() {
    for (int mask = 0; mask < 256; ++mask)
      for (int lane = 0, place = 0; lane < 8; ++lane)
        if ((mask >> lane) & 1) lanes[mask][place++] = static_cast<uint8_t>(lane);
  }
};
constexpr SetLanes kSetLanes;

struct Avx2 {
  static constexpr int kLanes = 8;
  using F = __m256;
  using Cmp = __m256;
  struct Mass {
    __m256i low, high;  // int64 of lanes 0-3 and 4-7
  };

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load_partial(const float* p, int lanes, float fill) {
    alignas(32) float all[kLanes];
    for (int i = 0; i < kLanes; ++i) all[i] = i < lanes ? p[i] : fill;
    return _mm256_load_ps(all);
  }
  static void store_partial(float* p, int lanes, F v) {
    if (lanes == kLanes) {
      _mm256_storeu_ps(p, v);
      return;
    }
    alignas(32) float all[kLanes];
    _mm256_store_ps(all, v);
    for (int i = 0; i < lanes; ++i) p[i] = all[i];
  }
  static F set(float v) { return _mm256_set1_ps(v); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F add_exponent(F e, F n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(e), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
  }
  static F zero_below(F w, F floor) { return _mm256_and_ps(w, _mm256_cmp_ps(w, floor, _CMP_GE_OQ)); }
  static float largest(F a) {
    alignas(32) float all[kLanes];
    _mm256_store_ps(all, a);
    return *std::max_element(all, all + kLanes);
  }

  static Cmp gt(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
  static Cmp ge(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
  static Cmp eq(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static uint32_t bits(Cmp c) { return static_cast<uint32_t>(_mm256_movemask_ps(c)); }

  static Mass no_mass() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Mass to_mass(F w) {
    const F scaled = mul(w, set(kMassScale));
    return {to_int64(_mm256_castps256_ps128(scaled)), to_int64(_mm256_extractf128_ps(scaled, 1))};
  }
  static Mass add_mass(Mass a, Mass b) {
    return {_mm256_add_epi64(a.low, b.low), _mm256_add_epi64(a.high, b.high)};
  }
  static Mass add_mass_where(Mass a, Cmp c, Mass b) {
    const __m256i lanes = _mm256_castps_si256(c);
    const __m256i low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(lanes));
    const __m256i high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(lanes, 1));
    return add_mass(a, {_mm256_and_si256(low, b.low), _mm256_and_si256(high, b.high)});
  }
  static int64_t total(Mass a) {
    alignas(32) int64_t all[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(all), _mm256_add_epi64(a.low, a.high));
    return all[0] + all[1] + all[2] + all[3];
  }

  // Whole registers are written (kPadding).
  static int compress(float* out, uint32_t kept, F v) {
    _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(v, kept_lanes(kept)));
    return __builtin_popcount(kept);
  }
  static void compress_ids(int32_t* out, uint32_t kept, const int32_t* ids, int32_t base, int lanes) {
    __m256i all = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(base));
    if (ids && lanes == kLanes) {
      all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ids + base));
    } else if (ids) {
      alignas(32) int32_t some[kLanes] = {};
      std::copy(ids + base, ids + base + lanes, some);
      all = _mm256_load_si256(reinterpret_cast<const __m256i*>(some));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32(all, kept_lanes(kept)));
  }

 private:
  // Rounds (to nearest, ties to even) doubles up to 2^51 by adding a number whose unit in the last place is 1.
  static __m256i to_int64(__m128 v) {
    const __m256d magic = _mm256_set1_pd(6755399441055744.0);  // 1.5 * 2^52
    return _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(_mm256_cvtps_pd(v), magic)), _mm256_castpd_si256(magic));
  }
  static __m256i kept_lanes(uint32_t kept) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kSetLanes.lanes[kept])));
  }
};

}  // namespace

const VectorOps kVectorOpsAvx2 = make_vector_ops<Avx2>();

}  // namespace octavo
