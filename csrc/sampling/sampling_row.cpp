#include "sampling/sampling_row.h"

#include "sampling/vector_ops.h"

namespace octavo {

void SamplingRow::count_token(int32_t token_id, int32_t count) {
  const auto [entry, is_new] = place_.try_emplace(token_id, counted_ids_.size());
  if (is_new) {
    counted_ids_.push_back(token_id);
    counts_.push_back(0);
  }
  counts_[entry->second] += count;
}

int64_t SamplingRow::max_edits() const {
  return static_cast<int64_t>(settings_.end_ids.size() + settings_.bias_ids.size() + counted_ids_.size());
}

float SamplingRow::penalised(float logit, int32_t count) const {
  const SamplingSettings& s = settings_;
  if (s.repetition_penalty != 1.0f) logit = logit > 0.0f ? logit / s.repetition_penalty : logit * s.repetition_penalty;
  if (count > 0) {
    logit = logit - s.frequency_penalty * static_cast<float>(count);
    logit = logit - s.presence_penalty;
  }
  return logit;
}

void SamplingRow::edit(float* logits, int64_t vocab_size, std::vector<std::pair<int32_t, float>>& undo) const {
  auto set = [&](int32_t id, auto&& change) {
    if (id < 0 || id >= vocab_size) return;
    undo.emplace_back(id, logits[id]);
    logits[id] = change(clean_logit(logits[id]));
  };
  if (position_ < settings_.min_tokens)
    for (int32_t id : settings_.end_ids) set(id, [](float) { return -__builtin_inff(); });
  for (size_t i = 0; i < settings_.bias_ids.size(); ++i)
    set(settings_.bias_ids[i], [&](float logit) { return logit + settings_.bias_values[i]; });
  for (size_t i = 0; i < counted_ids_.size(); ++i)
    set(counted_ids_[i], [&](float logit) { return penalised(logit, counts_[i]); });
}

}  // namespace octavo
