#include "sampling/batch_sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "sampling/philox.h"
#include "sampling/selection.h"

namespace octavo {
namespace {

// Waking the team costs microseconds, and milliseconds where its cores are busy with other processes: fewer logits than
// this in a call (or in a row that is to be shared out) are done sooner by the caller alone.
constexpr int64_t kWorthATeam = 131072;

float logprob(float logit, float peak, double log_sum) {
  const double value = (double{clean_logit(logit)} - double{peak}) - log_sum;
  return value > kLogprobFloor ? static_cast<float>(value) : kLogprobFloor;
}

void copy_allowed(const float* logits, const uint32_t* mask, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = (mask[i >> 5] >> (i & 31)) & 1u ? logits[i] : -__builtin_inff();
}

}  // namespace

BatchSampler::BatchSampler(int64_t vocab_size, ThreadTeam& team, Isa isa)
    : vocab_size_(vocab_size),
      team_(team),
      ops_(vector_ops(isa)),
      scratch_(static_cast<size_t>(team.size())),
      alone_(ops_, nullptr, vocab_size),
      together_(ops_, team.size() > 1 ? &team : nullptr, vocab_size) {
  for (Scratch& scratch : scratch_) {
    scratch.weights.resize(static_cast<size_t>(vocab_size + kPadding));
    scratch.selection.resize(static_cast<size_t>(vocab_size + kPadding));
    scratch.ids.resize(static_cast<size_t>(vocab_size + kPadding));
  }
}

// Many rows: each thread takes whole ones. Few rows of a large vocabulary: all threads share the passes of each.
template <class PerRow>
void BatchSampler::for_rows(int64_t num_rows, PerRow&& per_row) {
  if (team_.size() == 1 || num_rows * vocab_size_ < kWorthATeam) {
    for (int64_t row = 0; row < num_rows; ++row) per_row(row, alone_, scratch_[0]);
    return;
  }
  if (num_rows < team_.size() && vocab_size_ >= kWorthATeam) {
    team_.run([&](int thread) {
      if (thread != 0) return together_.help(thread);
      for (int64_t row = 0; row < num_rows; ++row) per_row(row, together_, scratch_[0]);
      together_.release_helpers();
    });
    return;
  }
  std::atomic<int64_t> next{0};
  team_.run([&](int thread) {
    for (int64_t row; (row = next.fetch_add(1, std::memory_order_relaxed)) < num_rows;)
      per_row(row, alone_, scratch_[static_cast<size_t>(thread)]);
  });
}

// Nothing is allocated inside the parallel region.
void BatchSampler::prepare(int64_t max_edits, bool changed, int64_t top) {
  for (Scratch& scratch : scratch_) {
    scratch.undo.reserve(static_cast<size_t>(max_edits));
    scratch.top.reserve(static_cast<size_t>(top + 1));
    if (changed) scratch.changed.resize(static_cast<size_t>(vocab_size_));
  }
}

void BatchSampler::sample(float* logits, const std::vector<const SamplingRow*>& rows, const int32_t* numbers,
                          const SampledRows& out) {
  int64_t max_edits = 0;
  bool masked = false;
  for (const SamplingRow* row : rows) {
    max_edits = std::max(max_edits, row->max_edits());
    masked = masked || row->allowed_mask;
  }
  prepare(max_edits, masked, out.top);
  for_rows(static_cast<int64_t>(rows.size()), [&](int64_t r, VocabularyPasses& passes, Scratch& scratch) {
    const int64_t number = numbers ? numbers[r] : r;
    sample_row(logits + number * vocab_size_, *rows[static_cast<size_t>(r)], r, out, passes, scratch);
  });
}

void BatchSampler::score(const float* logits, int64_t num_rows, const SampledRows& out) {
  prepare(0, false, out.top);
  for_rows(num_rows, [&](int64_t r, VocabularyPasses& passes, Scratch& scratch) {
    const float* row = logits + r * vocab_size_;
    report(row, normaliser(row, passes), r, out.top, out, ops_, scratch);
  });
}

void BatchSampler::continuations(const float* logits, const std::vector<const SamplingRow*>& rows,
                                 const SampledRows& out) {
  int64_t max_edits = 0;
  bool changed = false;
  for (const SamplingRow* row : rows) {
    max_edits = std::max(max_edits, row ? row->max_edits() : 0);
    changed = changed || row;
  }
  prepare(max_edits, changed, out.top);
  for_rows(static_cast<int64_t>(rows.size()), [&](int64_t r, VocabularyPasses& passes, Scratch& scratch) {
    const float* raw = logits + r * vocab_size_;
    const SamplingRow* row = rows[static_cast<size_t>(r)];
    Normaliser scale = normaliser(raw, passes);
    if (row) {
      float* values = scratch.changed.data();
      for (int64_t i = 0; i < vocab_size_; ++i) values[i] = logprob(raw[i], scale.peak, scale.log_sum);
      if (row->allowed_mask) copy_allowed(values, row->allowed_mask, vocab_size_, values);
      scratch.undo.clear();
      row->edit(values, vocab_size_, scratch.undo);
      raw = values;
      scale = {0.0f, 0.0};  // they are logprobs already
    }
    scratch.top.clear();
    report_top(raw, scale, r, out.top, out, passes.ops(), scratch);
  });
}

void BatchSampler::sample_row(float* logits, const SamplingRow& row, int64_t index, const SampledRows& out,
                              VocabularyPasses& passes, Scratch& scratch) const {
  const bool wants_logprobs = row.settings().logprobs >= 0;
  Normaliser raw{};
  if (wants_logprobs) raw = normaliser(logits, passes);

  float* work = logits;
  if (row.allowed_mask) {
    work = scratch.changed.data();
    copy_allowed(logits, row.allowed_mask, vocab_size_, work);
  }
  scratch.undo.clear();
  row.edit(work, vocab_size_, scratch.undo);
  out.token_ids[index] = choose(work, row, passes, scratch);
  // Backwards, because a token may have been edited twice.
  for (auto change = scratch.undo.rbegin(); change != scratch.undo.rend(); ++change) work[change->first] = change->second;

  if (wants_logprobs) report(logits, raw, index, row.settings().logprobs, out, passes.ops(), scratch);
}

int32_t BatchSampler::choose(const float* logits, const SamplingRow& row, VocabularyPasses& passes,
                             Scratch& scratch) const {
  const SamplingSettings& s = row.settings();
  const Peak peak = passes.peak(logits, vocab_size_);
  if (peak.index < 0) return kNoToken;
  if (s.inverse_temperature == 0.0f) return static_cast<int32_t>(peak.index);
  const float floor = std::max(s.min_p, kSmallestWeight);
  const int64_t mass =
      passes.weigh(logits, vocab_size_, peak.value, s.inverse_temperature, floor, scratch.weights.data());
  return choose_among(row, mass, passes.ops(), scratch);
}

int32_t BatchSampler::choose_among(const SamplingRow& row, int64_t mass, const VectorOps& ops, Scratch& scratch) const {
  const SamplingSettings& s = row.settings();
  float* weights = scratch.weights.data();
  int32_t* ids = scratch.ids.data();
  int64_t count = vocab_size_;
  bool compacted = false;
  auto keep = [&](const Cut& cut) {
    if (cut.ties == 0) return;  // everything
    count = ops.compact(weights, compacted ? ids : nullptr, count, cut.value, cut.ties, weights, ids);
    compacted = true;
    mass = ops.mass(weights, count);
  };
  if (s.top_k > 0 && s.top_k < vocab_size_)
    keep(find_count_cut(ops, weights, count, s.top_k, scratch.selection.data()));
  if (s.top_p < 1.0) {
    const auto needed = static_cast<int64_t>(std::ceil(s.top_p * static_cast<double>(mass)));
    if (needed < mass) keep(find_mass_cut(ops, weights, count, std::max<int64_t>(needed, 1), scratch.selection.data()));
  }
  const uint64_t bits = random_bits(s.seed, s.sequence_index, static_cast<uint64_t>(row.position()));
  const auto target = static_cast<int64_t>((static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(mass)) >> 64);
  const int64_t place = pick(ops, weights, count, target);
  return compacted ? ids[place] : static_cast<int32_t>(place);
}

BatchSampler::Normaliser BatchSampler::normaliser(const float* logits, VocabularyPasses& passes) const {
  const Peak peak = passes.peak(logits, vocab_size_);
  // Nothing is possible: every logprob becomes the floor.
  if (peak.index < 0) return {0.0f, 0.0};
  const int64_t mass = passes.exp_mass(logits, vocab_size_, peak.value);
  return {peak.value, std::log(static_cast<double>(mass) / double{kMassScale})};
}

void BatchSampler::report(const float* logits, const Normaliser& normaliser, int64_t index, int64_t top,
                          const SampledRows& out, const VectorOps& ops, Scratch& scratch) const {
  scratch.top.clear();
  if (top > 0) report_top(logits, normaliser, index, top, out, ops, scratch);
  const int32_t id = out.token_ids[index];
  if (id == kNoToken) {
    out.logprobs[index] = kLogprobFloor;
    out.ranks[index] = 0;
    return;
  }
  const float logit = clean_logit(logits[id]);
  const auto& best = scratch.top;
  int64_t better;
  if (!best.empty() && logit >= best.back().first) {  // then whatever is better is in the list
    better = std::count_if(best.begin(), best.end(), [&](const auto& entry) { return entry.first > logit; });
  } else {
    better = ops.count_greater(logits, vocab_size_, logit);
  }
  out.logprobs[index] = logprob(logit, normaliser.peak, normaliser.log_sum);
  out.ranks[index] = 1 + static_cast<int32_t>(better);
}

// A short sorted list (descending, ties by id), and a scan that stops only at logits above its last one.
void BatchSampler::report_top(const float* logits, const Normaliser& normaliser, int64_t index, int64_t top,
                              const SampledRows& out, const VectorOps& ops, Scratch& scratch) const {
  auto& best = scratch.top;
  const auto wanted = static_cast<size_t>(std::min(top, vocab_size_));
  for (int64_t i = 0; i < vocab_size_; ++i) {
    if (best.size() == wanted) i = ops.find_greater(logits, i, vocab_size_, best.back().first);
    if (i == vocab_size_) break;
    const float logit = clean_logit(logits[i]);
    auto place = best.end();
    while (place != best.begin() && std::prev(place)->first < logit) --place;
    if (best.size() == wanted) {
      const auto offset = place - best.begin();
      best.pop_back();
      place = best.begin() + offset;
    }
    best.insert(place, {logit, static_cast<int32_t>(i)});
  }
  for (size_t i = 0; i < best.size(); ++i) {
    const auto at = static_cast<size_t>(index * out.top) + i;
    out.top_ids[at] = best[i].second;
    out.top_logprobs[at] = logprob(best[i].first, normaliser.peak, normaliser.log_sum);
  }
}

}  // namespace octavo
