// What one sequence wants of the sampler, and its own token counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace octavo {

struct SamplingSettings {
  float inverse_temperature = 1.0f;  // 0: greedy
  double top_p = 1.0;
  int64_t top_k = 0;                 // 0: all
  float min_p = 0.0f;
  float repetition_penalty = 1.0f, frequency_penalty = 0.0f, presence_penalty = 0.0f;
  uint64_t seed = 0;
  uint32_t sequence_index = 0;
  int64_t min_tokens = 0;
  int logprobs = -1;                 // alternatives wanted besides the chosen token; -1: no logprobs at all
  std::vector<int32_t> end_ids;      // forbidden while fewer than min_tokens tokens are there
  std::vector<int32_t> bias_ids;     // distinct
  std::vector<float> bias_values;
};

class SamplingRow {
 public:
  explicit SamplingRow(SamplingSettings settings) : settings_(std::move(settings)) {}

  const SamplingSettings& settings() const { return settings_; }
  int64_t position() const { return position_; }  // number of output tokens so far
  void set_position(int64_t position) { position_ = position; }

  // Adds `count` occurrences of a token to those that the penalties see; 0 marks a prompt token.
  void count_token(int32_t token_id, int32_t count);
  // Takes over the next output token.
  void append(int32_t token_id) {
    ++position_;
    if (counts_outputs_) count_token(token_id, 1);
  }
  void set_counts_outputs(bool on) { counts_outputs_ = on; }

  // Bit i of word i / 32 permits token i; null permits all. Not owned.
  const uint32_t* allowed_mask = nullptr;

  // The most entries that edit() records.
  int64_t max_edits() const;
  // Forbids, biases and penalises in place; old values are recorded in order. Ids outside the vocabulary are ignored.
  void edit(float* logits, int64_t vocab_size, std::vector<std::pair<int32_t, float>>& undo) const;

 private:
  float penalised(float logit, int32_t count) const;

  SamplingSettings settings_;
  int64_t position_ = 0;
  bool counts_outputs_ = false;
  std::vector<int32_t> counted_ids_, counts_;
  std::unordered_map<int32_t, std::size_t> place_;  // id -> index into the two above
};

}  // namespace octavo
