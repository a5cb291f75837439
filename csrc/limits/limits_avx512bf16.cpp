// Products of bfloat16 pairs. Reading and the other products are those of AVX512.
#include "linear/simd512.h"

#include <utility>

#include "limits/limits.h"

namespace octavo {

extern const LimitLoops kLimitLoopsAvx512;

namespace {

constexpr int kChains = 12;

template <int... I>
float multiply(int64_t rounds, std::integer_sequence<int, I...>) {
  __m512 sums[] = {_mm512_set1_ps(I)...};
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00), b = (__m512bh)_mm512_set1_epi16(0x3e80);  // 0.5 and 0.25
  // Equal chains would become one, if the compiler knew what is in them.
  const auto multiply_one = [&](__m512& sum) {
    sum = _mm512_dpbf16_ps(sum, a, b);
    asm volatile("" : "+v"(sum));
  };
  for (int64_t round = 0; round < rounds; ++round) (multiply_one(sums[I]), ...);
  __m512 all = _mm512_setzero_ps();
  ((all = _mm512_add_ps(all, sums[I])), ...);
  return _mm512_cvtss_f32(all);
}

uint64_t read(const void* memory, int64_t bytes) { return kLimitLoopsAvx512.read(memory, bytes); }

float int8_products(int64_t rounds) { return kLimitLoopsAvx512.products[0].run(rounds); }
float bf16_products(int64_t rounds) { return multiply(rounds, std::make_integer_sequence<int, kChains>{}); }
float f32_products(int64_t rounds) { return kLimitLoopsAvx512.products[2].run(rounds); }

}  // namespace

extern const LimitLoops kLimitLoopsAvx512Bf16;
const LimitLoops kLimitLoopsAvx512Bf16{
    read, {{int8_products, 12 * 128}, {bf16_products, kChains * 64}, {f32_products, 12 * 32}}};

}  // namespace octavo
