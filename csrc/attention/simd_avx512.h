// Sixteen float lanes. Included only by files compiled for AVX512; everything here has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

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
  // Of kVectors vectors, one half after the other: in AVX2's order.
  template <int kVectors>
  static float total(const Vec (&a)[kVectors]) {
    __m256 sum = _mm512_castps512_ps256(a[0]);
    for (int i = 1; i < 2 * kVectors; ++i) {
      const Vec& both = a[i / 2];
      sum = _mm256_add_ps(sum, i % 2 == 0 ? _mm512_castps512_ps256(both) : _mm512_extractf32x8_ps(both, 1));
    }
    return half_total(sum);
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

  // ---- int8 caches: kWidth pairs of 16-bit integers ----
  static constexpr int kIntegerRows = 8;  // 16 sums; 12 rows are not faster
  static constexpr int kLeastSums = 10;   // two additions a cycle that take five (Intel); one that takes four on Zen 4
  using Ints = __m512i;

  static Ints zero_ints() { return _mm512_setzero_si512(); }
  static Ints load_pairs(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Ints set_pair(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  // sum + the sums of each pair's products, in 32 bits. In assembler, so that a sum stays in its register: the intrinsic
  // makes GCC 12 copy and spill them.
  static Ints add_products(Ints a, Ints b, Ints sum) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  static Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static Vec to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
  // Rounded to nearest even, kept within 16 bits.
  static void store_rounded(int16_t* p, Vec a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a)));
  }
  // a where b is not 0 (a NaN is not), else 0.
  static Vec where_not_zero(Vec b, Vec a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(b, zero(), _CMP_NEQ_UQ), a);
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
