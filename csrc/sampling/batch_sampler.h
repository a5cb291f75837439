// Samples, or scores, a batch of logits rows. octavo/sampling/__init__.py documents the semantics.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/thread_team.h"
#include "sampling/sampling_row.h"
#include "sampling/vector_ops.h"
#include "sampling/vocabulary_passes.h"

namespace octavo {

constexpr float kLogprobFloor = -9999.0f;  // reported instead of -inf
constexpr int32_t kNoToken = -1;           // chosen where every token is forbidden

// Where results go. The arrays of logprobs may be null where no row wants them.
struct SampledRows {
  int32_t* token_ids;    // [L]
  float* logprobs;       // [L], 0 where not wanted
  int32_t* ranks;        // [L], 1 = most likely; 0 where not wanted
  int32_t* top_ids;      // [L, top]
  float* top_logprobs;   // [L, top]
  int64_t top;
};

class BatchSampler {
 public:
  // The team must outlive the sampler; nobody else may use it during a call.
  BatchSampler(int64_t vocab_size, ThreadTeam& team, Isa isa);

  int64_t vocab_size() const { return vocab_size_; }

  // logits [R, vocab_size]: changed during the call, but the same again afterwards. numbers [L]: which of them each row
  // reads, all different; null: rows in order.
  void sample(float* logits, const std::vector<const SamplingRow*>& rows, const int32_t* numbers, const SampledRows& out);
  // Logprobs, ranks and the `out.top` most likely tokens for given ids (out.token_ids is read).
  void score(const float* logits, int64_t num_rows, const SampledRows& out);
  // The `top` likeliest next tokens [L, top] of beams. A row, unless it is null, edits logprobs instead of logits.
  void continuations(const float* logits, const std::vector<const SamplingRow*>& rows, const SampledRows& out);

 private:
  struct Scratch {
    std::vector<float> weights, selection, changed;
    std::vector<int32_t> ids;
    std::vector<std::pair<int32_t, float>> undo;
    std::vector<std::pair<float, int32_t>> top;  // the most likely (logit, id) so far
  };
  struct Normaliser {
    float peak;
    double log_sum;  // logprob = (logit - peak) - log_sum
  };

  template <class PerRow>
  void for_rows(int64_t num_rows, PerRow&& per_row);
  void prepare(int64_t max_edits, bool changed, int64_t top);
  void sample_row(float* logits, const SamplingRow& row, int64_t index, const SampledRows& out, VocabularyPasses& passes,
                  Scratch& scratch) const;
  int32_t choose(const float* logits, const SamplingRow& row, VocabularyPasses& passes, Scratch& scratch) const;
  int32_t choose_among(const SamplingRow& row, int64_t mass, const VectorOps& ops, Scratch& scratch) const;
  Normaliser normaliser(const float* logits, VocabularyPasses& passes) const;
  void report(const float* logits, const Normaliser& normaliser, int64_t index, int64_t top, const SampledRows& out,
              const VectorOps& ops, Scratch& scratch) const;
  void report_top(const float* logits, const Normaliser& normaliser, int64_t index, int64_t top, const SampledRows& out,
                  const VectorOps& ops, Scratch& scratch) const;

  int64_t vocab_size_;
  ThreadTeam& team_;
  const VectorOps& ops_;
  std::vector<Scratch> scratch_;       // one a thread
  VocabularyPasses alone_, together_;
};

}  // namespace octavo
