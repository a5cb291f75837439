#include "sampling/selection.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace octavo {
namespace {

// Few enough to sort.
constexpr int64_t kSortable = 96;

uint32_t to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The search for one cut. Invariant: amount(w > high) = above < needed <= amount(w > low), and the cut is in (low, high].
// Floats that are not negative order like their bits, which makes bisection end after a few passes.
struct Search {
  const VectorOps& ops;
  bool by_mass;
  int64_t needed;
  float low = 0.0f, high = 1.0f;
  int64_t above = 0;

  int64_t amount(float weight) const { return by_mass ? weight_mass(weight) : 1; }

  // One pass over weights with descending pivots in [low, high). base: the amount above `high`, which is not in weights
  // any more. False where even all weights above the last pivot do not suffice.
  bool narrow(const float* weights, int64_t n, const float* pivots, int64_t base) {
    int64_t amounts[kPivots];
    (by_mass ? ops.mass_above : ops.count_above)(weights, n, pivots, amounts);
    for (int j = 0; j < kPivots; ++j) {
      if (base + amounts[j] >= needed) {
        low = pivots[j];
        return true;
      }
      high = pivots[j];
      above = base + amounts[j];
    }
    return false;
  }

  // Pivots that divide (low, high) evenly by bits; the last one is low itself.
  void spread(float* pivots) const {
    const uint64_t bottom = to_bits(low), span = to_bits(high) - bottom;
    for (int j = 0; j < kPivots; ++j)
      pivots[j] = from_bits(static_cast<uint32_t>(bottom + span * static_cast<uint64_t>(kPivots - 1 - j) / kPivots));
  }

  Cut exact(float* candidates, int64_t n) const {
    std::sort(candidates, candidates + n, std::greater<float>());
    int64_t sum = above, ties = 0;
    for (int64_t i = 0; i < n; ++i) {
      ties = i > 0 && candidates[i] == candidates[i - 1] ? ties + 1 : 1;
      sum += amount(candidates[i]);
      if (sum >= needed) return {candidates[i], ties};
    }
    return {0.0f, 0};
  }
};

// Whether few of the first weights are above `value`: a guess that saves time where it is right.
bool looks_sparse(const VectorOps& ops, const float* weights, int64_t n, float value) {
  constexpr int64_t kProbed = 2048;
  const int64_t probed = std::min(n, kProbed);
  return ops.count_greater(weights, probed, value) * 4 < probed;
}

// The candidates of a first cut over all weights: in scratch, between search.low and search.high. Negative where even
// all positive weights do not suffice.
int64_t first_candidates(Search& search, const float* weights, int64_t n, float* scratch) {
  constexpr float kLikely = 5e-5f;
  const VectorOps& ops = search.ops;
  // A language model's distribution is steep: mostly a few hundred tokens hold all that is needed.
  if (looks_sparse(ops, weights, n, kLikely)) {
    const int64_t count = ops.extract(weights, n, kLikely, search.high, scratch);
    if ((search.by_mass ? ops.mass(scratch, count) : count) >= search.needed) {
      search.low = kLikely;
      return count;
    }
  }
  const float pivots[kPivots] = {0.5f, 0.2f, 0.06f, 0.02f, 4e-3f, 5e-4f, 2e-5f, 0.0f};
  if (!search.narrow(weights, n, pivots, 0)) return -1;
  return ops.extract(weights, n, search.low, search.high, scratch);
}

Cut find_cut(const VectorOps& ops, const float* weights, int64_t n, bool by_mass, int64_t needed, float* scratch) {
  Search search{ops, by_mass, needed};
  int64_t count = n > kSortable ? first_candidates(search, weights, n, scratch)
                                : ops.extract(weights, n, search.low, search.high, scratch);
  if (count < 0) return {0.0f, 0};
  while (count > kSortable) {
    if (to_bits(search.high) - to_bits(search.low) == 1) {
      const int64_t each = search.amount(search.high), missing = needed - search.above;
      return {search.high, (missing + each - 1) / each};
    }
    float even[kPivots];
    search.spread(even);
    search.narrow(scratch, count, even, search.above);
    count = ops.extract(scratch, count, search.low, search.high, scratch);
  }
  return search.exact(scratch, count);
}

}  // namespace

Cut find_count_cut(const VectorOps& ops, const float* weights, int64_t n, int64_t needed, float* scratch) {
  return find_cut(ops, weights, n, false, needed, scratch);
}

Cut find_mass_cut(const VectorOps& ops, const float* weights, int64_t n, int64_t needed, float* scratch) {
  return find_cut(ops, weights, n, true, needed, scratch);
}

int64_t pick(const VectorOps& ops, const float* weights, int64_t n, int64_t target) {
  constexpr int64_t kCoarse = 4096, kFine = 128;
  int64_t begin = 0;
  for (int64_t step : {kCoarse, kFine}) {
    while (begin + step < n) {
      const int64_t part = ops.mass(weights + begin, step);
      if (part > target) break;
      target -= part;
      begin += step;
    }
  }
  for (; begin < n; ++begin) {
    target -= weight_mass(weights[begin]);
    if (target < 0) return begin;
  }
  return n - 1;
}

}  // namespace octavo
