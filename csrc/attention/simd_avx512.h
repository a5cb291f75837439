// Sixteen float lanes. Included only by files compiled for AVX512; everything here has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

// GCC 12 takes the deliberately undefined operands inside its own intrinsics for mistakes.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace octavo {
namespace {

struct Avx512 {
  static constexpr int kWidth = 16;
  static constexpr int kRows = 8;  // rows of a product kept in registers together
  using Vec = __m512;
  using Mask = __mmask16;

  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec set(float x) { return _mm512_set1_ps(x); }
  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec a) { _mm512_storeu_ps(p, a); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  static Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }  // b where either is NaN
  // Shifts the low bits of a float into the exponent.
  static Vec exponent(Vec a) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23)); }

  // Lanes [begin, end), clipped to the vector.
  static Mask lanes(int begin, int end) { return static_cast<Mask>(below(end) & ~below(begin)); }
  static Vec where(Mask mask, Vec a, Vec b) { return _mm512_mask_blend_ps(mask, b, a); }

  static float highest(Vec a) {
    return half_highest(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
  }
  static float total(Vec a) {
    return half_total(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
  }

  // The partners of kWidth pairs of a cache row (see kv_cache.h).
  static void load_pair(const uint16_t* p, Vec& first, Vec& second) {
    const __m512i both = _mm512_loadu_si512(p);
    first = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    second = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void load_pair(const float* p, Vec& first, Vec& second) {
    first = load(p);
    second = load(p + 16);
  }

 private:
  static uint32_t below(int lane) { return lane <= 0 ? 0u : lane >= 16 ? 0xffffu : (1u << lane) - 1u; }
  static float half_highest(__m256 a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }
  static float half_total(__m256 a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
};

}  // namespace
}  // namespace octavo
