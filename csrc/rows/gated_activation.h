// Gated activations, written once over a vector type V, whose bits are the same with any: internal linkage, one copy per
// including file.
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo {
namespace {

// 1 + 2^(x * rate), to about 1 ulp, for exponents within 126 of 0: 2^n times a polynomial of what is left of the exponent.
// The product is not rounded, for its error would be one of the power, times the exponent.
template <class V>
class OnePlusPower {
 public:
  OnePlusPower(typename V::F x, typename V::F rate) : shifted_(V::fma(x, rate, magic())) {
    rest_ = V::fms(x, rate, V::sub(shifted_, magic()));
  }
  // What the rate lacks to float32.
  void correct(typename V::F x, typename V::F rate) { rest_ = V::fma(x, rate, rest_); }

  typename V::F value() const {
    auto p = V::fma(V::set(0.00015353361959569156f), rest_, V::set(0.0013398873852565885f));
    p = V::fma(p, rest_, V::set(0.00961843691766262f));
    p = V::fma(p, rest_, V::set(0.055503323674201965f));
    p = V::fma(p, rest_, V::set(0.24022647738456726f));
    p = V::fma(p, rest_, V::set(0.6931471824645996f));
    p = V::fma(p, rest_, V::set(1.0f));
    return V::fma(p, V::exponent(shifted_), V::set(1.0f));
  }

 private:
  // 1.5 * 2^23 + 127: adding it rounds to an integer and leaves the biased exponent in the low bits.
  static typename V::F magic() { return V::set(12583039.0f); }

  typename V::F shifted_, rest_;
};

// silu(x) = x / (1 + exp(-x))
template <class V>
struct Silu {
  static typename V::F denominator(typename V::F x) {
    x = V::within(x, V::set(87.0f));
    OnePlusPower<V> power(x, V::set(-1.44269502f));  // -log2(e), and what that lacks
    power.correct(x, V::set(-1.92596299e-8f));
    return power.value();
  }
};

// gelu_tanh(x) = x / 2 (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
template <class V>
struct GeluTanh {
  static typename V::F denominator(typename V::F x) {
    x = V::within(x, V::set(10.0f));
    // -2 log2(e) sqrt(2/pi) (1 + 0.044715 x^2)
    return OnePlusPower<V>(x, V::fma(V::mul(x, x), V::set(-0.102943242f), V::set(-2.30220819f))).value();
  }
};

template <class V, class Activation>
inline void gate_vector(const float* gate, const float* up, float* out) {
  const auto x = V::load(gate);
  V::store(out, V::mul(V::div(x, Activation::denominator(x)), V::load(up)));
}

// out = activation(gate) * up
template <class V, template <class> class Activation>
void gated(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) gate_vector<V, Activation<V>>(gate + i, up + i, out + i);
  if (i == n) return;
  const size_t rest = (n - i) * sizeof(float);
  float last[2][V::kLanes] = {};
  std::memcpy(last[0], gate + i, rest);
  std::memcpy(last[1], up + i, rest);
  gate_vector<V, Activation<V>>(last[0], last[1], last[0]);
  std::memcpy(out + i, last[0], rest);
}

}  // namespace
}  // namespace octavo
