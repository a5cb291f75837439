#include "sampling/vocabulary_passes.h"

#include <algorithm>

namespace octavo {

Peak VocabularyPasses::peak(const float* logits, int64_t n) {
  if (!team_) return ops_.peak(logits, n);
  share_out({Kind::kPeak, logits, n});
  Peak best{-__builtin_inff(), -1};
  for (int64_t c = 0; c * kChunk < n; ++c) {
    const Peak& part = partials_[static_cast<size_t>(c)].peak;
    if (part.value > best.value) best = {part.value, c * kChunk + part.index};
  }
  return best;
}

int64_t VocabularyPasses::weigh(const float* logits, int64_t n, float peak, float inverse_temperature, float floor,
                                float* weights) {
  if (!team_) return ops_.weigh(logits, n, peak, inverse_temperature, floor, weights);
  share_out({Kind::kWeigh, logits, n, peak, inverse_temperature, floor, weights});
  return total_mass();
}

int64_t VocabularyPasses::exp_mass(const float* logits, int64_t n, float peak) {
  if (!team_) return ops_.exp_mass(logits, n, peak);
  share_out({Kind::kExpMass, logits, n, peak});
  return total_mass();
}

void VocabularyPasses::help(int thread) {
  for (;;) {
    team_->barrier(thread);  // the leader has written job_
    if (job_.kind == Kind::kDone) return;
    work(thread);
    team_->barrier(thread);  // all partials are there
  }
}

void VocabularyPasses::release_helpers() {
  job_ = {};
  team_->barrier(0);
}

void VocabularyPasses::share_out(const Job& job) {
  job_ = job;
  team_->barrier(0);
  work(0);
  team_->barrier(0);
}

void VocabularyPasses::work(int thread) {
  const Range range = share(job_.n, thread, team_->size(), kChunk);
  for (int64_t begin = range.begin; begin < range.end; begin += kChunk) {
    const int64_t count = std::min(kChunk, range.end - begin);
    const float* part = job_.logits + begin;
    Partial& out = partials_[static_cast<size_t>(begin / kChunk)];
    if (job_.kind == Kind::kPeak) {
      out.peak = ops_.peak(part, count);
    } else if (job_.kind == Kind::kWeigh) {
      out.mass = ops_.weigh(part, count, job_.peak, job_.inverse_temperature, job_.floor, job_.weights + begin);
    } else {
      out.mass = ops_.exp_mass(part, count, job_.peak);
    }
  }
}

int64_t VocabularyPasses::total_mass() const {
  int64_t sum = 0;
  for (int64_t c = 0; c * kChunk < job_.n; ++c) sum += partials_[static_cast<size_t>(c)].mass;
  return sum;
}

}  // namespace octavo
