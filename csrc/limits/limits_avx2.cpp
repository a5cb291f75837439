#include <immintrin.h>

#include <utility>

#include "limits/limits.h"

namespace octavo {
namespace {

// As many as hide the latency of these instructions on two ports.
constexpr int kChains = 8;
using Chains = std::make_integer_sequence<int, kChains>;

// Hides from the compiler what the value is: equal chains would become one, and equal products be computed once.
template <class Vector>
inline void renew(Vector& value) {
  asm volatile("" : "+x"(value));
}

uint64_t read(const void* memory, int64_t bytes) {
  const __m256i* at = static_cast<const __m256i*>(memory);
  __m256i sums[4] = {};
  for (int64_t line = 0; line < bytes / kReadGrain; ++line, at += 16)
    for (int i = 0; i < 16; ++i) sums[i % 4] = _mm256_xor_si256(sums[i % 4], _mm256_load_si256(at + i));
  const __m256i sum = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0) ^ _mm256_extract_epi64(sum, 1) ^
                               _mm256_extract_epi64(sum, 2) ^ _mm256_extract_epi64(sum, 3));
}

// Sums in 16 bits, as kernels do as long as they cannot overflow.
template <int... I>
float multiply_int8(int64_t rounds, std::integer_sequence<int, I...>) {
  __m256i sums[] = {_mm256_set1_epi16(I)...}, codes = _mm256_set1_epi8(15);
  const __m256i inputs = _mm256_set1_epi8(3);
  for (int64_t round = 0; round < rounds; ++round)
    ((renew(codes), sums[I] = _mm256_add_epi16(sums[I], _mm256_maddubs_epi16(codes, inputs))), ...);
  __m256i all = _mm256_setzero_si256();
  ((all = _mm256_add_epi16(all, sums[I])), ...);
  return static_cast<float>(_mm256_extract_epi16(all, 0));
}

template <int... I>
float multiply_f32(int64_t rounds, std::integer_sequence<int, I...>) {
  __m256 sums[] = {_mm256_set1_ps(I)...};
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (int64_t round = 0; round < rounds; ++round)
    ((sums[I] = _mm256_fmadd_ps(a, b, sums[I]), renew(sums[I])), ...);
  __m256 all = _mm256_setzero_ps();
  ((all = _mm256_add_ps(all, sums[I])), ...);
  return _mm256_cvtss_f32(all);
}

float int8_products(int64_t rounds) { return multiply_int8(rounds, Chains{}); }
float f32_products(int64_t rounds) { return multiply_f32(rounds, Chains{}); }

}  // namespace

extern const LimitLoops kLimitLoopsAvx2;
const LimitLoops kLimitLoopsAvx2{
    read, {{int8_products, kChains * 64}, {nullptr, 0}, {f32_products, kChains * 16}}};

}  // namespace octavo
