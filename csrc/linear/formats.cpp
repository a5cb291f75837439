#include "linear/formats.h"

#include <stdexcept>

namespace octavo {
namespace {

struct FormatRow {
  WeightFormat format;
  const char* name;
};
constexpr FormatRow kFormats[] = {
    {WeightFormat::kF32, "f32"},
    {WeightFormat::kBf16, "bf16"},
    {WeightFormat::kW4, "w4"},
    {WeightFormat::kW4Symmetric, "w4symmetric"},
    {WeightFormat::kW6, "w6"},
    {WeightFormat::kW6G16, "w6g16"},
    {WeightFormat::kW6Affine, "w6affine"},
    {WeightFormat::kW6AffineG16, "w6affine_g16"},
    {WeightFormat::kW8, "w8"},
};

struct KindRow {
  TensorKind kind;
  const char* name;
  int64_t values, bytes;  // of one block
  WeightFormat format;    // the integer format that keeps its codes
};
constexpr KindRow kKinds[] = {
    {TensorKind::kF32, "F32", 1, 4, WeightFormat::kF32},
    {TensorKind::kF16, "F16", 1, 2, WeightFormat::kF32},
    {TensorKind::kBF16, "BF16", 1, 2, WeightFormat::kBf16},
    {TensorKind::kQ8_0, "Q8_0", 32, 34, WeightFormat::kW8},
    {TensorKind::kQ4_0, "Q4_0", 32, 18, WeightFormat::kW4Symmetric},
    {TensorKind::kQ4_1, "Q4_1", 32, 20, WeightFormat::kW4},
    {TensorKind::kQ5_0, "Q5_0", 32, 22, WeightFormat::kW6},
    {TensorKind::kQ5_1, "Q5_1", 32, 24, WeightFormat::kW6Affine},
    {TensorKind::kQ2_K, "Q2_K", 256, 84, WeightFormat::kW6AffineG16},
    {TensorKind::kQ3_K, "Q3_K", 256, 110, WeightFormat::kW6G16},
    {TensorKind::kQ4_K, "Q4_K", 256, 144, WeightFormat::kW4},
    {TensorKind::kQ5_K, "Q5_K", 256, 176, WeightFormat::kW6Affine},
    {TensorKind::kQ6_K, "Q6_K", 256, 210, WeightFormat::kW6G16},
};

const KindRow& kind_row(TensorKind kind) { return kKinds[static_cast<int>(kind)]; }

template <class Rows>
[[noreturn]] void refuse(const char* what, const std::string& name, const Rows& rows) {
  std::string message = std::string(what) + " is '" + name + "', must be one of:";
  for (const auto& row : rows) message += std::string(" ") + row.name;
  throw std::invalid_argument(message);
}

}  // namespace

const char* format_name(WeightFormat format) { return kFormats[static_cast<int>(format)].name; }

WeightFormat parse_format(const std::string& name) {
  for (const FormatRow& row : kFormats)
    if (name == row.name) return row.format;
  refuse("format", name, kFormats);
}

const char* kind_name(TensorKind kind) { return kind_row(kind).name; }

TensorKind parse_kind(const std::string& name) {
  for (const KindRow& row : kKinds)
    if (name == row.name) return row.kind;
  refuse("kind", name, kKinds);
}

int64_t kind_block_values(TensorKind kind) { return kind_row(kind).values; }
int64_t kind_block_bytes(TensorKind kind) { return kind_row(kind).bytes; }

std::vector<WeightFormat> formats_for(TensorKind kind) {
  const WeightFormat native = kind_row(kind).format;
  if (native == WeightFormat::kF32) return {WeightFormat::kF32, WeightFormat::kBf16};
  if (native == WeightFormat::kBf16) return {WeightFormat::kBf16, WeightFormat::kF32};
  return {native, WeightFormat::kF32, WeightFormat::kBf16};
}

bool is_integer(WeightFormat format) { return format != WeightFormat::kF32 && format != WeightFormat::kBf16; }

InputKind input_kind(WeightFormat format, bool int8) {
  if (format == WeightFormat::kF32) return InputKind::kF32;
  if (format == WeightFormat::kBf16) return InputKind::kBf16;
  return int8 ? InputKind::kA8 : InputKind::kA14;
}

}  // namespace octavo
