// The long passes over one row of logits, on one thread or shared by a team.
#pragma once

#include <vector>

#include "common/thread_team.h"
#include "sampling/vector_ops.h"

namespace octavo {

// Thread 0 leads: its calls of peak, weigh and exp_mass wake the helpers for their share of fixed chunks of the
// vocabulary. The sums are integers and the best index is the lowest, so the result is the same however it is shared.
class VocabularyPasses {
 public:
  // team null: the caller does everything itself. vocab_size: the longest row.
  VocabularyPasses(const VectorOps& ops, ThreadTeam* team, int64_t vocab_size)
      : ops_(ops), team_(team), partials_(team ? (vocab_size + kChunk - 1) / kChunk : 0) {}

  const VectorOps& ops() const { return ops_; }

  Peak peak(const float* logits, int64_t n);
  int64_t weigh(const float* logits, int64_t n, float peak, float inverse_temperature, float floor, float* weights);
  int64_t exp_mass(const float* logits, int64_t n, float peak);

  // What the other threads of the team do, until the leader calls release_helpers().
  void help(int thread);
  void release_helpers();

 private:
  static constexpr int64_t kChunk = 8192;
  enum class Kind { kPeak, kWeigh, kExpMass, kDone };
  struct Job {
    Kind kind = Kind::kDone;
    const float* logits = nullptr;
    int64_t n = 0;
    float peak = 0.0f, inverse_temperature = 1.0f, floor = 0.0f;
    float* weights = nullptr;
  };
  struct Partial {
    Peak peak;
    int64_t mass;
  };

  void share_out(const Job& job);
  void work(int thread);
  int64_t total_mass() const;

  const VectorOps& ops_;
  ThreadTeam* team_;
  Job job_;
  std::vector<Partial> partials_;  // one a chunk
};

}  // namespace octavo
