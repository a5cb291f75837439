#include "runner/step_view.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("step: " + message);
}

void check_sequence(const StepView& step, int64_t seq, const PhaseList& program, int block_size, int64_t num_blocks) {
  const int64_t begin = step.query_start_loc[seq], end = step.query_start_loc[seq + 1];
  const int64_t length = step.seq_lens[seq], first = length - (end - begin);
  require(begin < end && end <= step.num_tokens, "query_start_loc is not ascending within num_tokens");
  require(first >= 0, "seq_lens is shorter than the sequence's new tokens");
  for (int64_t row = begin; row < end; ++row)
    require(step.positions[row] == first + (row - begin), "positions are not the last ones of the sequence");
  for (const PlanShape& plan : program.plans()) {
    const StepView::Table& table = step.block_tables[plan.group];
    const int64_t seen = plan.window > 0 ? std::max<int64_t>(0, first - plan.window + 1) : 0;
    const int64_t last = (length - 1) / block_size;
    require(last < table.columns, "a block table is shorter than its sequence");
    for (int64_t block = seen / block_size; block <= last; ++block) {
      const int32_t id = table.data[seq * table.columns + block];
      require(id >= 0 && id < num_blocks, "block id " + std::to_string(id) + " is not in the KV memory");
    }
  }
}

}  // namespace

void check_step(const StepView& step, const PhaseList& program, int block_size, int64_t num_blocks) {
  require(step.num_tokens > 0 && step.num_seqs > 0, "is empty");
  require(step.block_tables.size() == static_cast<size_t>(program.num_groups()), "one block table per KV group wanted");
  require(step.query_start_loc[0] == 0 && step.query_start_loc[step.num_seqs] == step.num_tokens,
          "query_start_loc does not cover the tokens");
  for (int64_t seq = 0; seq < step.num_seqs; ++seq) check_sequence(step, seq, program, block_size, num_blocks);
  const auto* embed = std::get_if<EmbedRow>(&std::get<RowPhase>(program.phases().front()).ops.front());
  for (int64_t row = 0; row < step.num_tokens; ++row)
    require(step.token_ids[row] >= 0 && step.token_ids[row] < embed->weight->n(),
            "token id " + std::to_string(step.token_ids[row]) + " is outside the vocabulary");
  for (int64_t i = 0; i < step.num_logits; ++i)
    require(step.logits_rows[i] >= 0 && step.logits_rows[i] < step.num_tokens, "logits_rows names no row");
  require(step.num_logits <= step.num_tokens, "logits_rows has more rows than the step");
  for (int64_t i = 0; i < 2 * step.num_copies; ++i)
    require(step.copies[i] >= 0 && step.copies[i] < num_blocks, "copies names no block");
}

}  // namespace octavo
