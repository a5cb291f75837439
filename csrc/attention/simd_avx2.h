// Eight float lanes. Included only by files compiled for AVX2; everything here has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace octavo {
namespace {

struct Avx2 {
  static constexpr int kWidth = 8;
  static constexpr int kRows = 4;  // rows of a product kept in registers together
  using Vec = __m256;
  using Mask = __m256;

  static Vec zero() { return _mm256_setzero_ps(); }
  static Vec set(float x) { return _mm256_set1_ps(x); }
  static Vec load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vec a) { _mm256_storeu_ps(p, a); }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  static Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }  // b where either is NaN
  // Shifts the low bits of a float into the exponent.
  static Vec exponent(Vec a) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23)); }

  // Lanes [begin, end), clipped to the vector.
  static Mask lanes(int begin, int end) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane);
    const __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane);
    return _mm256_castsi256_ps(_mm256_andnot_si256(low, high));
  }
  static Vec where(Mask mask, Vec a, Vec b) { return _mm256_blendv_ps(b, a, mask); }

  static float highest(Vec a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }
  // Of kVectors vectors, one after the other.
  template <int kVectors>
  static float total(const Vec (&a)[kVectors]) {
    Vec sum = a[0];
    for (int i = 1; i < kVectors; ++i) sum = add(sum, a[i]);
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }

  // The partners of kWidth pairs of a cache row (see kv_cache.h).
  static void load_pair(const uint16_t* p, Vec& first, Vec& second) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    first = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    second = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void load_pair(const float* p, Vec& first, Vec& second) {
    first = load(p);
    second = load(p + 16);
  }

  // ---- int8 caches: kWidth pairs of 16-bit integers ----
  static constexpr int kIntegerRows = 6;  // 12 sums, 2 codes, an integer pair and its products: all registers
  static constexpr int kLeastSums = 2;    // additions that take a cycle hold nothing up
  using Ints = __m256i;

  static Ints zero_ints() { return _mm256_setzero_si256(); }
  static Ints load_pairs(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Ints set_pair(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
  }
  // sum + the sums of each pair's products, in 32 bits. In assembler, so that a sum stays in its register: from
  // intrinsics GCC 12 copies or spills them, which costs half of the time.
  static Ints add_products(Ints a, Ints b, Ints sum) {
    Ints products;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
    return sum;
  }
  static Ints add_ints(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static Vec to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
  // Rounded to nearest even, kept within 16 bits.
  static void store_rounded(int16_t* p, Vec a) {
    const __m256i whole = _mm256_cvtps_epi32(a);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
  }
  // a where b is not 0 (a NaN is not), else 0.
  static Vec where_not_zero(Vec b, Vec a) { return _mm256_and_ps(_mm256_cmp_ps(b, zero(), _CMP_NEQ_UQ), a); }
};

}  // namespace
}  // namespace octavo
