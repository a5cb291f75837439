// A weight matrix in the order in which the kernels read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/thread_team.h"
#include "linear/formats.h"

namespace octavo {

// Hands out memory for weights from large regions that the system may back with huge pages. A small weight is not worth
// a huge page of its own, so the weights of a model share an arena. Freed as a whole. Not for concurrent callers.
class WeightArena {
 public:
  WeightArena() = default;
  ~WeightArena();
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;

  uint8_t* allocate(int64_t bytes);  // zeroed, aligned to 64 bytes; throws std::bad_alloc
  int64_t reserved_bytes() const;

 private:
  std::vector<std::pair<void*, size_t>> regions_;
  uint8_t* next_ = nullptr;
  int64_t left_ = 0;
};

class PackedWeight {
 public:
  // Packs rows of a file's tensor. raw: n rows of k values of `kind`, contiguous. Row i of the weight is row row_order[i] of
  // raw (nullptr: row i). bias: n floats or nullptr, copied. arena: where the bytes go (nullptr: an arena of its own).
  // Throws std::invalid_argument for shapes that the kind or the format does not allow and for scales that are not finite
  // (naming the row).
  static std::unique_ptr<PackedWeight> pack(WeightFormat format, TensorKind kind, const uint8_t* raw, int64_t n, int64_t k,
                                            const int32_t* row_order, const float* bias, ThreadTeam& team,
                                            std::shared_ptr<WeightArena> arena);

  WeightFormat format() const { return format_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t panels() const { return (n_ + kPanel - 1) / kPanel; }
  int64_t panel_bytes() const { return panel_bytes_; }
  int64_t bytes() const { return panels() * panel_bytes_; }
  const uint8_t* panel(int64_t index) const { return data_ + index * panel_bytes_; }
  const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }  // padded with zeros to whole panels

  // Integer formats only: row `row` as w_int [k]; returns its D.
  float integer_row(int64_t row, int16_t* w_int) const;
  // Any format: row `row` times `scale` as float32 [k].
  void dequantize_row(int64_t row, float scale, float* out) const;

 private:
  PackedWeight(WeightFormat format, int64_t n, int64_t k, const float* bias, std::shared_ptr<WeightArena> arena);

  WeightFormat format_;
  int64_t n_, k_, panel_bytes_;
  std::shared_ptr<WeightArena> arena_;
  uint8_t* data_;
  std::vector<float> bias_;
};

}  // namespace octavo
