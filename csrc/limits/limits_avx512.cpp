#include <immintrin.h>

#include <utility>

#include "limits/limits.h"

namespace octavo {
namespace {

constexpr int kChains = 12;
using Chains = std::make_integer_sequence<int, kChains>;

// Hides from the compiler what the value is: equal chains would become one.
template <class Vector>
inline void renew(Vector& value) {
  asm volatile("" : "+v"(value));
}

uint64_t read(const void* memory, int64_t bytes) {
  const __m512i* at = static_cast<const __m512i*>(memory);
  __m512i sums[4];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t line = 0; line < bytes / kReadGrain; ++line, at += 8)
    for (int i = 0; i < 8; ++i) sums[i % 4] = _mm512_xor_si512(sums[i % 4], _mm512_load_si512(at + i));
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3])));
  uint64_t all = 0;
  for (uint64_t word : words) all ^= word;
  return all;
}

template <int... I>
float multiply_int8(int64_t rounds, std::integer_sequence<int, I...>) {
  __m512i sums[] = {_mm512_set1_epi32(I)...};
  const __m512i codes = _mm512_set1_epi8(15), inputs = _mm512_set1_epi8(3);
  for (int64_t round = 0; round < rounds; ++round)
    ((sums[I] = _mm512_dpbusd_epi32(sums[I], codes, inputs), renew(sums[I])), ...);
  __m512i all = _mm512_setzero_si512();
  ((all = _mm512_add_epi32(all, sums[I])), ...);
  return static_cast<float>(_mm_cvtsi128_si32(_mm512_castsi512_si128(all)));
}

template <int... I>
float multiply_f32(int64_t rounds, std::integer_sequence<int, I...>) {
  __m512 sums[] = {_mm512_set1_ps(I)...};
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (int64_t round = 0; round < rounds; ++round)
    ((sums[I] = _mm512_fmadd_ps(a, b, sums[I]), renew(sums[I])), ...);
  __m512 all = _mm512_setzero_ps();
  ((all = _mm512_add_ps(all, sums[I])), ...);
  return _mm512_cvtss_f32(all);
}

float int8_products(int64_t rounds) { return multiply_int8(rounds, Chains{}); }
float f32_products(int64_t rounds) { return multiply_f32(rounds, Chains{}); }

}  // namespace

extern const LimitLoops kLimitLoopsAvx512;
const LimitLoops kLimitLoopsAvx512{
    read, {{int8_products, kChains * 128}, {nullptr, 0}, {f32_products, kChains * 32}}};

}  // namespace octavo
