#include "linear/packed_weight.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "linear/pack.h"

namespace octavo {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kRegion = int64_t{32} << 20;

int64_t panel_bytes_of(WeightFormat format, int64_t kp) {
  if (format == WeightFormat::kF32) return kp * kPanel * 4;
  if (format == WeightFormat::kBf16) return kp * kPanel * 2;
  int64_t bytes = 0;
  visit_int_format(format, [&](auto f) { bytes = decltype(f)::panel_bytes(kp); });
  return bytes;
}

void check(WeightFormat format, TensorKind kind, int64_t n, int64_t k) {
  const std::string shape = " (n " + std::to_string(n) + ", k " + std::to_string(k) + ")";
  if (n < 1 || n > (int64_t{1} << 31)) throw std::invalid_argument("n is out of range 1 to 2^31" + shape);
  if (k < 1 || k > kMaxK) throw std::invalid_argument("k is out of range 1 to " + std::to_string(kMaxK) + shape);
  if (k % kind_block_values(kind) != 0)
    throw std::invalid_argument("k must be a multiple of " + std::to_string(kind_block_values(kind)) + " for " +
                                kind_name(kind) + shape);
  std::string names;
  for (WeightFormat allowed : formats_for(kind)) {
    if (allowed == format) return;
    names += std::string(" ") + format_name(allowed);
  }
  throw std::invalid_argument(std::string("format is '") + format_name(format) + "', a " + kind_name(kind) +
                              " tensor can be packed as:" + names);
}

// The code of input i of column `column`, in the order in which write_codes stores them.
template <class F>
int code_at(const uint8_t* panel, int64_t i, int column) {
  if constexpr (F::kBits == 8) return panel[i / 4 * 64 + column * 4 + i % 4];
  if constexpr (F::kBits == 6) {
    const uint8_t* const at = panel + i / 16 * 192 + column * 4 + i % 4;
    const int64_t quad = i % 16 / 4;
    const int low = quad < 2 ? at[quad * 64] & 15 : at[quad % 2 * 64] >> 4;
    return low | ((at[128] >> 2 * quad) & 3) << 4;
  }
  const int64_t group = i / 32, quad = i % 32 / 4;
  const uint8_t byte = panel[group * F::kCodeBytes + quad % 4 * 64 + column * 4 + i % 4];
  return quad < 4 ? byte & 15 : byte >> 4;
}

template <class F>
float integer_row_of(const uint8_t* panel, int column, int64_t k, int16_t* w_int) {
  const int64_t kp = padded_k(k);
  const int16_t* const scales = reinterpret_cast<const int16_t*>(panel + F::scale_offset(kp));
  for (int64_t i = 0; i < k; ++i) {
    const int64_t at = i / F::kGroup * kPanel + column;
    const int code = code_at<F>(panel, i, column);
    const int value = F::kAffine ? scales[2 * at] * code + scales[2 * at + 1] : scales[at] * (code - F::kOffset);
    w_int[i] = static_cast<int16_t>(value);
  }
  float scale;
  std::memcpy(&scale, panel + F::row_scale_offset(kp) + 4 * column, 4);
  return scale;
}

float bf16_to_float(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace

WeightArena::~WeightArena() {
  for (const auto& [address, bytes] : regions_) munmap(address, bytes);
}

uint8_t* WeightArena::allocate(int64_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (bytes > left_) {
    // Larger than asked, so that a start at a huge-page boundary fits. Untouched pages cost nothing.
    const int64_t size = (bytes > kRegion ? bytes : kRegion) + kHugePage;
    void* const address =
        mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) throw std::bad_alloc();
    regions_.emplace_back(address, static_cast<size_t>(size));
    madvise(address, static_cast<size_t>(size), MADV_HUGEPAGE);  // only advice: without it all works, slower
    const uintptr_t start = (reinterpret_cast<uintptr_t>(address) + kHugePage - 1) / kHugePage * kHugePage;
    next_ = reinterpret_cast<uint8_t*>(start);
    left_ = size - static_cast<int64_t>(start - reinterpret_cast<uintptr_t>(address));
  }
  uint8_t* const result = next_;
  next_ += bytes;
  left_ -= bytes;
  return result;
}

int64_t WeightArena::reserved_bytes() const {
  int64_t total = 0;
  for (const auto& region : regions_) total += static_cast<int64_t>(region.second);
  return total;
}

PackedWeight::PackedWeight(WeightFormat format, int64_t n, int64_t k, const float* bias, std::shared_ptr<WeightArena> arena)
    : format_(format), n_(n), k_(k), panel_bytes_(panel_bytes_of(format, padded_k(k))), arena_(std::move(arena)) {
  data_ = arena_->allocate(bytes());
  if (bias) {
    bias_.assign(static_cast<size_t>(panels() * kPanel), 0.0f);
    std::memcpy(bias_.data(), bias, static_cast<size_t>(n) * sizeof(float));
  }
}

std::unique_ptr<PackedWeight> PackedWeight::pack(WeightFormat format, TensorKind kind, const uint8_t* raw, int64_t n,
                                                 int64_t k, const int32_t* row_order, const float* bias, ThreadTeam& team,
                                                 std::shared_ptr<WeightArena> arena) {
  check(format, kind, n, k);
  for (int64_t row = 0; row_order && row < n; ++row)
    if (row_order[row] < 0 || row_order[row] >= n)
      throw std::invalid_argument("row_order[" + std::to_string(row) + "] is " + std::to_string(row_order[row]) +
                                  ", must be between 0 and " + std::to_string(n - 1));
  if (!arena) arena = std::make_shared<WeightArena>();
  std::unique_ptr<PackedWeight> weight(new PackedWeight(format, n, k, bias, std::move(arena)));
  const PackSource source{kind, raw, n, k, row_order};
  const int64_t scratch_bytes = pack_scratch_bytes(k);
  std::vector<uint8_t> scratch(static_cast<size_t>(scratch_bytes * team.size() + 64));
  uint8_t* const base = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  std::atomic<int64_t> bad_row{-1};
  team.run([&](int thread) {
    const Range panels = share(weight->panels(), thread, team.size());
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      uint8_t* const to = weight->data_ + panel * weight->panel_bytes_;
      const int64_t bad = pack_panel_avx2(format, source, panel, to, base + thread * scratch_bytes);
      if (bad < 0) continue;
      bad_row.store(bad);
      return;
    }
  });
  if (bad_row.load() >= 0)
    throw std::invalid_argument("row " + std::to_string(bad_row.load()) + " holds a scale or value that is not finite");
  return weight;
}

float PackedWeight::integer_row(int64_t row, int16_t* w_int) const {
  float scale = 0.0f;
  const int column = static_cast<int>(row % kPanel);
  visit_int_format(format_, [&](auto f) { scale = integer_row_of<decltype(f)>(panel(row / kPanel), column, k_, w_int); });
  return scale;
}

void PackedWeight::dequantize_row(int64_t row, float scale, float* out) const {
  const uint8_t* const from = panel(row / kPanel);
  const int64_t column = row % kPanel;
  if (format_ == WeightFormat::kF32) {
    for (int64_t i = 0; i < k_; ++i) out[i] = reinterpret_cast<const float*>(from)[i * kPanel + column] * scale;
  } else if (format_ == WeightFormat::kBf16) {
    const uint16_t* const halves = reinterpret_cast<const uint16_t*>(from) + 2 * column;
    for (int64_t i = 0; i < k_; ++i) out[i] = bf16_to_float(halves[i / 2 * 2 * kPanel + i % 2]) * scale;
  } else {
    // The integers go to the upper half of the output and are widened from the front: no buffer of its own.
    int16_t* const w_int = reinterpret_cast<int16_t*>(out + k_) - k_;
    const float d = integer_row(row, w_int);
    for (int64_t i = 0; i < k_; ++i) {
      int16_t value;
      std::memcpy(&value, w_int + i, 2);
      const float product = static_cast<float>(value) * d * scale;
      std::memcpy(out + i, &product, 4);
    }
  }
}

}  // namespace octavo
