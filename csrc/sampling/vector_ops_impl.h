// The passes of vector_ops.h, written once over a vector type V. Included by the file of each instruction set only;
// everything is in an anonymous namespace, so that each gets its own copy compiled with its own flags.
#pragma once

#include <algorithm>

#include "sampling/vector_ops.h"

namespace octavo {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kLargest = 3.40282346638528859811704183484516925e+38f;

// Calls body(vector, index, lanes) over [begin, n); the ragged end is filled up with `fill`.
template <class V, class Body>
inline void for_vectors(const float* x, int64_t begin, int64_t n, float fill, Body&& body) {
  int64_t i = begin;
  for (; i + V::kLanes <= n; i += V::kLanes) body(V::load(x + i), i, V::kLanes);
  if (i < n) body(V::load_partial(x + i, static_cast<int>(n - i), fill), i, static_cast<int>(n - i));
}

template <class V>
inline typename V::F clean(typename V::F x) {
  // The operand order matters: of a NaN and a number, x86 max and min return the second operand.
  return V::min(V::max(x, V::set(-kInfinity)), V::set(kLargest));
}

// exp of x in [-30, 0] within 1e-7 (relative), 1 for 0: range reduction by ln 2 in two parts, a polynomial of degree 6,
// then 2^n added to the exponent bits. No step may be fused: numpy does the same in the reference.
template <class V>
inline typename V::F exp_nonpositive(typename V::F x) {
  const auto n = V::round(V::mul(x, V::set(1.44269504f)));
  auto r = V::sub(x, V::mul(n, V::set(0.693359375f)));
  r = V::sub(r, V::mul(n, V::set(-2.12194440e-4f)));
  auto p = V::add(V::mul(V::set(0.0013814593f), r), V::set(0.0083687175f));
  p = V::add(V::mul(p, r), V::set(0.04166839f));
  p = V::add(V::mul(p, r), V::set(0.16666521f));
  p = V::add(V::mul(p, r), V::set(0.49999994f));
  const auto e = V::add(V::add(V::mul(p, V::mul(r, r)), r), V::set(1.0f));
  return V::add_exponent(e, n);
}

template <class V>
inline typename V::F weight(typename V::F logit, typename V::F peak, typename V::F inverse_temperature,
                            typename V::F floor) {
  const auto x = V::mul(V::sub(clean<V>(logit), peak), inverse_temperature);
  return V::zero_below(exp_nonpositive<V>(V::max(x, V::set(-30.0f))), floor);
}

template <class V>
int64_t find_greater(const float* x, int64_t begin, int64_t n, float value) {
  const auto bound = V::set(value);
  int64_t i = begin;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    const uint32_t bits = V::bits(V::gt(clean<V>(V::load(x + i)), bound));
    if (bits) return i + __builtin_ctz(bits);
  }
  for (; i < n; ++i)
    if (clean_logit(x[i]) > value) return i;
  return n;
}

// The maximum of a stretch that fits the first-level cache; its place is looked up only when it is a new best.
template <class V>
Peak peak(const float* x, int64_t n) {
  constexpr int64_t kStretch = 4096;
  Peak best{-kInfinity, -1};
  for (int64_t begin = 0; begin < n; begin += kStretch) {
    const int64_t count = std::min(kStretch, n - begin);
    const float* part = x + begin;
    typename V::F top[4] = {V::set(-kInfinity), V::set(-kInfinity), V::set(-kInfinity), V::set(-kInfinity)};
    int64_t i = 0;
    for (; i + 4 * V::kLanes <= count; i += 4 * V::kLanes)
      for (int u = 0; u < 4; ++u) top[u] = V::max(V::load(part + i + u * V::kLanes), top[u]);
    for_vectors<V>(part, i, count, -kInfinity, [&](auto v, int64_t, int) { top[0] = V::max(v, top[0]); });
    const auto all = V::min(V::max(V::max(top[0], top[1]), V::max(top[2], top[3])), V::set(kLargest));
    const float value = V::largest(all);
    if (!(value > best.value)) continue;
    for (i = 0; !(clean_logit(part[i]) >= value);) {
      const bool skip = i + V::kLanes <= count && !V::bits(V::ge(clean<V>(V::load(part + i)), V::set(value)));
      i += skip ? V::kLanes : 1;
    }
    best = {value, begin + i};
  }
  return best;
}

template <class V>
int64_t weigh(const float* x, int64_t n, float peak, float inverse_temperature, float floor, float* weights) {
  const auto top = V::set(peak), scale = V::set(inverse_temperature), least = V::set(floor);
  auto sum = V::no_mass();
  for_vectors<V>(x, 0, n, -kInfinity, [&](auto v, int64_t i, int lanes) {
    const auto w = weight<V>(v, top, scale, least);
    V::store_partial(weights + i, lanes, w);
    sum = V::add_mass(sum, V::to_mass(w));
  });
  return V::total(sum);
}

template <class V>
int64_t exp_mass(const float* x, int64_t n, float peak) {
  const auto top = V::set(peak), scale = V::set(1.0f), least = V::set(kSmallestWeight);
  auto sum = V::no_mass();
  for_vectors<V>(x, 0, n, -kInfinity, [&](auto v, int64_t, int) {
    sum = V::add_mass(sum, V::to_mass(weight<V>(v, top, scale, least)));
  });
  return V::total(sum);
}

template <class V>
int64_t mass(const float* weights, int64_t n) {
  auto sum = V::no_mass();
  for_vectors<V>(weights, 0, n, 0.0f, [&](auto w, int64_t, int) { sum = V::add_mass(sum, V::to_mass(w)); });
  return V::total(sum);
}

template <class V>
void mass_above(const float* weights, int64_t n, const float* pivots, int64_t* amounts) {
  typename V::Mass sums[kPivots];
  for (auto& sum : sums) sum = V::no_mass();
  for_vectors<V>(weights, 0, n, 0.0f, [&](auto w, int64_t, int) {
    const auto m = V::to_mass(w);
    for (int j = 0; j < kPivots; ++j) sums[j] = V::add_mass_where(sums[j], V::gt(w, V::set(pivots[j])), m);
  });
  for (int j = 0; j < kPivots; ++j) amounts[j] = V::total(sums[j]);
}

template <class V>
void count_above(const float* weights, int64_t n, const float* pivots, int64_t* amounts) {
  int64_t counts[kPivots] = {};
  for_vectors<V>(weights, 0, n, 0.0f, [&](auto w, int64_t, int) {
    for (int j = 0; j < kPivots; ++j) counts[j] += __builtin_popcount(V::bits(V::gt(w, V::set(pivots[j]))));
  });
  std::copy(counts, counts + kPivots, amounts);
}

template <class V>
int64_t extract(const float* weights, int64_t n, float low, float high, float* out) {
  int64_t count = 0;
  for_vectors<V>(weights, 0, n, 0.0f, [&](auto w, int64_t, int lanes) {
    const uint32_t inside = V::bits(V::gt(w, V::set(low))) & ~V::bits(V::gt(w, V::set(high))) & ((1u << lanes) - 1);
    count += V::compress(out + count, inside, w);
  });
  return count;
}

// Only the first `ties` set bits of `equal`; counts them off.
inline uint32_t take_ties(uint32_t equal, int64_t& ties) {
  uint32_t taken = 0;
  for (; equal && ties > 0; --ties) {
    taken |= equal & (0u - equal);
    equal &= equal - 1;
  }
  return taken;
}

template <class V>
int64_t compact(const float* weights, const int32_t* ids, int64_t n, float value, int64_t ties, float* weights_out,
                int32_t* ids_out) {
  int64_t count = 0;
  const auto bound = V::set(value);
  for_vectors<V>(weights, 0, n, 0.0f, [&](auto w, int64_t i, int lanes) {
    const uint32_t inside = (1u << lanes) - 1, equal = V::bits(V::eq(w, bound)) & inside;
    uint32_t kept = V::bits(V::gt(w, bound)) & inside;
    if (equal) kept |= take_ties(equal, ties);
    if (!kept) return;
    V::compress_ids(ids_out + count, kept, ids, static_cast<int32_t>(i), lanes);
    count += V::compress(weights_out + count, kept, w);
  });
  return count;
}

template <class V>
int64_t count_greater(const float* x, int64_t n, float value) {
  int64_t count = 0;
  const auto bound = V::set(value);
  for_vectors<V>(x, 0, n, -kInfinity, [&](auto v, int64_t, int) {
    count += __builtin_popcount(V::bits(V::gt(clean<V>(v), bound)));
  });
  return count;
}

template <class V>
constexpr VectorOps make_vector_ops() {
  return {peak<V>, weigh<V>,   exp_mass<V>, mass_above<V>,    count_above<V>,
          mass<V>, extract<V>, compact<V>,  count_greater<V>, find_greater<V>};
}

}  // namespace
}  // namespace octavo
