// Python's view of csrc/sampling: every shape and id is checked here, then the GIL is released.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "sampling/batch_sampler.h"
#include "sampling/philox.h"
#include "sampling/sampling_row.h"

namespace nb = nanobind;

namespace {

using Logits = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ReadOnlyLogits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ReadOnlyIds = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using TopIds = nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using TopFloats = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A row, and the mask that it points to.
struct Row {
  octavo::SamplingRow row;
  std::optional<Mask> mask;
};

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

void require_length(size_t length, size_t expected, const char* name) {
  require(length == expected, std::string(name) + " has length " + std::to_string(length) + ", must be " +
                                  std::to_string(expected));
}

Row make_row(float inverse_temperature, double top_p, int64_t top_k, float min_p, float repetition_penalty,
             float frequency_penalty, float presence_penalty, uint64_t seed, uint32_t sequence_index, int64_t min_tokens,
             int logprobs, std::vector<int32_t> end_ids, std::vector<int32_t> bias_ids, std::vector<float> bias_values) {
  require_length(bias_values.size(), bias_ids.size(), "bias_values");
  octavo::SamplingSettings settings;
  settings.inverse_temperature = inverse_temperature;
  settings.top_p = top_p;
  settings.top_k = top_k;
  settings.min_p = min_p;
  settings.repetition_penalty = repetition_penalty;
  settings.frequency_penalty = frequency_penalty;
  settings.presence_penalty = presence_penalty;
  settings.seed = seed;
  settings.sequence_index = sequence_index;
  settings.min_tokens = min_tokens;
  settings.logprobs = logprobs;
  settings.end_ids = std::move(end_ids);
  settings.bias_ids = std::move(bias_ids);
  settings.bias_values = std::move(bias_values);
  return {octavo::SamplingRow(std::move(settings)), std::nullopt};
}

void set_counts(Row& self, ReadOnlyIds ids, ReadOnlyIds counts) {
  require_length(counts.size(), ids.size(), "counts");
  for (size_t i = 0; i < ids.size(); ++i) self.row.count_token(ids.data()[i], counts.data()[i]);
  self.row.set_counts_outputs(true);
}

void set_mask(Row& self, std::optional<Mask> mask) {
  self.mask = std::move(mask);
  self.row.allowed_mask = self.mask ? self.mask->data() : nullptr;
}

octavo::SampledRows sampled_rows(size_t num_rows, const Ids& token_ids, const Floats& logprobs, const Ids& ranks,
                                 const TopIds& top_ids, const TopFloats& top_logprobs) {
  require_length(token_ids.size(), num_rows, "token_ids");
  require_length(logprobs.size(), num_rows, "logprobs");
  require_length(ranks.size(), num_rows, "ranks");
  require_length(top_ids.shape(0), num_rows, "top_ids");
  require_length(top_logprobs.shape(0), num_rows, "top_logprobs");
  require_length(top_logprobs.shape(1), top_ids.shape(1), "a row of top_logprobs");
  return {token_ids.data(),  logprobs.data(),     ranks.data(),
          top_ids.data(), top_logprobs.data(), static_cast<int64_t>(top_ids.shape(1))};
}

void require_vocabulary(const octavo::BatchSampler& sampler, size_t columns) {
  require_length(columns, static_cast<size_t>(sampler.vocab_size()), "a row of logits");
}

// null_rows: whether None may stand for a row that changes nothing.
std::vector<const octavo::SamplingRow*> checked_rows(const octavo::BatchSampler& sampler, nb::list rows,
                                                     int64_t max_logprobs, bool null_rows = false) {
  std::vector<const octavo::SamplingRow*> out;
  out.reserve(rows.size());
  const size_t words = static_cast<size_t>((sampler.vocab_size() + 31) / 32);
  for (nb::handle item : rows) {
    if (null_rows && item.is_none()) {
      out.push_back(nullptr);
      continue;
    }
    const Row& row = nb::cast<const Row&>(item);
    require(row.row.settings().logprobs <= max_logprobs, "logprobs is " + std::to_string(row.row.settings().logprobs) +
                                                             ", must fit the arrays for them");
    if (row.mask) require_length(row.mask->size(), words, "allowed_mask");
    out.push_back(&row.row);
  }
  return out;
}

// Of a call that reads some rows of logits only: which ones; null where it reads all of them.
const int32_t* checked_numbers(const std::optional<ReadOnlyIds>& numbers, size_t count, size_t num_logits) {
  if (!numbers) {
    require_length(count, num_logits, "rows");
    return nullptr;
  }
  require_length(numbers->size(), count, "numbers");
  std::vector<bool> seen(num_logits);
  for (size_t i = 0; i < count; ++i) {
    const int32_t number = numbers->data()[i];
    require(number >= 0 && static_cast<size_t>(number) < num_logits && !seen[static_cast<size_t>(number)],
            "numbers[" + std::to_string(i) + "] is " + std::to_string(number) + ", must be another one, below " +
                std::to_string(num_logits));
    seen[static_cast<size_t>(number)] = true;
  }
  return numbers->data();
}

void sample(octavo::BatchSampler& self, Logits logits, nb::list rows, std::optional<ReadOnlyIds> numbers,
            Ids token_ids) {
  require_vocabulary(self, logits.shape(1));
  const int32_t* const rows_read = checked_numbers(numbers, rows.size(), logits.shape(0));
  require_length(token_ids.size(), rows.size(), "token_ids");
  const auto checked = checked_rows(self, rows, -1);
  nb::gil_scoped_release release;
  self.sample(logits.data(), checked, rows_read, {token_ids.data(), nullptr, nullptr, nullptr, nullptr, 0});
}

void sample_with_logprobs(octavo::BatchSampler& self, Logits logits, nb::list rows, std::optional<ReadOnlyIds> numbers,
                          Ids token_ids, Floats logprobs, Ids ranks, TopIds top_ids, TopFloats top_logprobs) {
  require_vocabulary(self, logits.shape(1));
  const int32_t* const rows_read = checked_numbers(numbers, rows.size(), logits.shape(0));
  const auto out = sampled_rows(rows.size(), token_ids, logprobs, ranks, top_ids, top_logprobs);
  const auto checked = checked_rows(self, rows, out.top);
  nb::gil_scoped_release release;
  self.sample(logits.data(), checked, rows_read, out);
}

void score(octavo::BatchSampler& self, ReadOnlyLogits logits, Ids token_ids, Floats logprobs, Ids ranks, TopIds top_ids,
           TopFloats top_logprobs) {
  require_vocabulary(self, logits.shape(1));
  const auto out = sampled_rows(logits.shape(0), token_ids, logprobs, ranks, top_ids, top_logprobs);
  require(out.top <= self.vocab_size(), "top is " + std::to_string(out.top) + ", must be at most the vocabulary");
  for (size_t i = 0; i < token_ids.size(); ++i)
    require(token_ids.data()[i] >= 0 && token_ids.data()[i] < self.vocab_size(),
            "token_ids[" + std::to_string(i) + "] is " + std::to_string(token_ids.data()[i]) +
                ", must be between 0 and " + std::to_string(self.vocab_size() - 1));
  nb::gil_scoped_release release;
  self.score(logits.data(), static_cast<int64_t>(logits.shape(0)), out);
}

void continuations(octavo::BatchSampler& self, ReadOnlyLogits logits, nb::list rows, TopIds top_ids,
                   TopFloats top_logprobs) {
  require_vocabulary(self, logits.shape(1));
  require_length(rows.size(), logits.shape(0), "rows");
  require_length(top_ids.shape(0), logits.shape(0), "top_ids");
  require_length(top_logprobs.shape(0), logits.shape(0), "top_logprobs");
  require_length(top_logprobs.shape(1), top_ids.shape(1), "a row of top_logprobs");
  const auto top = static_cast<int64_t>(top_ids.shape(1));
  require(top >= 1 && top <= self.vocab_size(), "top is " + std::to_string(top) + ", must be 1 to the vocabulary");
  const auto checked = checked_rows(self, rows, std::numeric_limits<int64_t>::max(), true);
  nb::gil_scoped_release release;
  self.continuations(logits.data(), checked, {nullptr, nullptr, nullptr, top_ids.data(), top_logprobs.data(), top});
}

void make_sampler(octavo::BatchSampler* self, int64_t vocab_size, octavo::ThreadTeam& team, const std::string& instruction_set) {
  constexpr int64_t kMaxVocabulary = 1 << 20;  // sums of 2^40-scaled weights stay in 63 bits
  require(vocab_size >= 1 && vocab_size <= kMaxVocabulary, "vocab_size is " + std::to_string(vocab_size) +
                                                               ", must be between 1 and " + std::to_string(kMaxVocabulary));
  const octavo::Isa isa =
      instruction_set.empty() ? octavo::detect_isa() : octavo::parse_isa(instruction_set);
  require(octavo::isa_supported(isa), "instruction_set is '" + instruction_set + "', which this machine does not have");
  new (self) octavo::BatchSampler(vocab_size, team, isa);
}

}  // namespace

void bind_sampling(nb::module_& m) {
  nb::class_<Row>(m, "SamplingRow")
      .def_static("make", &make_row, nb::kw_only(), nb::arg("inverse_temperature"), nb::arg("top_p"), nb::arg("top_k"),
                  nb::arg("min_p"), nb::arg("repetition_penalty"), nb::arg("frequency_penalty"),
                  nb::arg("presence_penalty"), nb::arg("seed"), nb::arg("sequence_index"), nb::arg("min_tokens"),
                  nb::arg("logprobs"), nb::arg("end_ids"), nb::arg("bias_ids"), nb::arg("bias_values"))
      .def("set_position", [](Row& self, int64_t position) { self.row.set_position(position); })
      .def("set_counts", &set_counts, nb::arg("ids"), nb::arg("counts"))
      .def("set_allowed_mask", &set_mask, nb::arg("mask").none())
      .def("append", [](Row& self, int32_t token_id) { self.row.append(token_id); });
  nb::class_<octavo::BatchSampler>(m, "BatchSampler")
      .def("__init__", &make_sampler, nb::arg("vocab_size"), nb::arg("threads"), nb::arg("instruction_set") = "",
           nb::keep_alive<1, 3>())  // the sampler keeps the threads
      .def("sample", &sample, nb::arg("logits"), nb::arg("rows"), nb::arg("numbers").none(), nb::arg("token_ids"))
      .def("sample_with_logprobs", &sample_with_logprobs, nb::arg("logits"), nb::arg("rows"),
           nb::arg("numbers").none(), nb::arg("token_ids"), nb::arg("logprobs"), nb::arg("ranks"), nb::arg("top_ids"),
           nb::arg("top_logprobs"))
      .def("score", &score, nb::arg("logits"), nb::arg("token_ids"), nb::arg("logprobs"), nb::arg("ranks"),
           nb::arg("top_ids"), nb::arg("top_logprobs"))
      .def("continuations", &continuations, nb::arg("logits"), nb::arg("rows"), nb::arg("top_ids"),
           nb::arg("top_logprobs"));
  m.def("philox4x32", [](std::vector<uint32_t> counter, std::vector<uint32_t> key) {
    require_length(counter.size(), 4, "counter");
    require_length(key.size(), 2, "key");
    const auto words = octavo::philox4x32({counter[0], counter[1], counter[2], counter[3]}, {key[0], key[1]});
    return std::vector<uint32_t>(words.begin(), words.end());
  });
}
