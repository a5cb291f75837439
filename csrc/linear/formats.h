// Weight formats, what a GGUF tensor kind becomes, and how a panel of 16 output columns lies in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo {

constexpr int kPanel = 16;  // output columns of one panel: the lanes of a 512-bit vector of 32-bit numbers
constexpr int64_t kMaxK = int64_t{1} << 18;

// The integer formats store codes q and, per row and group of inputs, integers e and z: w_int = e*q + z, w = D*w_int with
// one float D per row. |w_int| <= 8191 (kW4*) or 32767 (the others). Symmetric ones have no z: their codes are signed.
enum class WeightFormat : int {
  kF32,          // float32
  kBf16,         // bfloat16
  kW4,           // 4-bit codes, groups of 32, e and z
  kW4Symmetric,  // 4-bit codes, groups of 32, e
  kW6,           // 6-bit codes, groups of 32, e
  kW6G16,        // 6-bit codes, groups of 16, e
  kW6Affine,     // 6-bit codes, groups of 32, e and z
  kW6AffineG16,  // 6-bit codes, groups of 16, e and z
  kW8,           // 8-bit codes, groups of 32, e
};

// The tensor kinds of GGUF and safetensors files that can be packed.
enum class TensorKind : int { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K };

// How the inputs of a linear are prepared; linears of one kind and one input share the prepared rows. Integer formats
// take 14-bit integers with a scale per row (kA14), or 8-bit ones with a scale per 32 inputs (kA8).
enum class InputKind : int { kF32, kBf16, kA14, kA8 };
constexpr int kNumInputKinds = 4;

const char* format_name(WeightFormat format);
WeightFormat parse_format(const std::string& name);  // throws std::invalid_argument with the allowed names
const char* kind_name(TensorKind kind);
TensorKind parse_kind(const std::string& name);  // throws std::invalid_argument with the allowed names

// Values per block of the file and bytes per block.
int64_t kind_block_values(TensorKind kind);
int64_t kind_block_bytes(TensorKind kind);

// The formats a kind can be packed into, the closest to the file first.
std::vector<WeightFormat> formats_for(TensorKind kind);

bool is_integer(WeightFormat format);
// What a linear of this format reads; with `int8` an integer format takes kA8.
InputKind input_kind(WeightFormat format, bool int8);

// k rounded up to whole tiles; the padding is zeros and adds nothing.
inline int64_t padded_k(int64_t k) { return (k + 63) / 64 * 64; }

// A panel of an integer format: codes of all groups, then scales of all groups, then D of its 16 rows.
//   codes, 8 bits: per group, per quad (4 consecutive k): 16 columns x 4 bytes
//   codes, 6 bits: per 16 inputs, 3 x 64 bytes; of vectors 0 and 1 the low nibbles are the low bits of quad i, the high ones of
//                  quad i + 2; in every byte of vector 2 bits 2i and 2i + 1 are the high bits of quad i
//   codes, 4 bits: per group, 4 x 64 bytes; of vector i the low nibbles are quad i, the high ones quad i + 4
//   symmetric codes are stored plus 2^(bits - 1)
//   scales, affine: per group 16 x (int16 e, int16 z); symmetric: per group 16 x int16 e
template <int Bits, int Group, bool Affine>
struct IntFormat {
  static constexpr int kBits = Bits, kGroup = Group;
  static constexpr bool kAffine = Affine;
  static constexpr int kOffset = Affine ? 0 : 1 << (Bits - 1);          // what is added to a code when it is stored
  static constexpr int kCodeBytes = kPanel * Group * Bits / 8;         // of one group
  static constexpr int kScaleBytes = Affine ? 4 * kPanel : 2 * kPanel;  // of one group
  static constexpr int kGroupBytes = kCodeBytes + kScaleBytes;
  static constexpr int kLimit = Bits == 4 ? 8191 : 32767;               // of |w_int|
  // Inputs whose sum of w_int * (7-bit plane) cannot leave int32: kLimit * 64 * kFlush < 2^31.
  static constexpr int kFlush = Bits == 4 ? 4096 : 1024;
  static int64_t scale_offset(int64_t kp) { return kp / Group * kCodeBytes; }
  static int64_t row_scale_offset(int64_t kp) { return kp / Group * (kCodeBytes + kScaleBytes); }
  static int64_t panel_bytes(int64_t kp) { return row_scale_offset(kp) + 4 * kPanel; }
};
using W4 = IntFormat<4, 32, true>;
using W4Symmetric = IntFormat<4, 32, false>;
using W6 = IntFormat<6, 32, false>;
using W6G16 = IntFormat<6, 16, false>;
using W6Affine = IntFormat<6, 32, true>;
using W6AffineG16 = IntFormat<6, 16, true>;
using W8 = IntFormat<8, 32, false>;

// Calls function(IntFormat{}) for an integer format.
template <class Function>
void visit_int_format(WeightFormat format, Function&& function) {
  switch (format) {
    case WeightFormat::kW4: return function(W4{});
    case WeightFormat::kW4Symmetric: return function(W4Symmetric{});
    case WeightFormat::kW6: return function(W6{});
    case WeightFormat::kW6G16: return function(W6G16{});
    case WeightFormat::kW6Affine: return function(W6Affine{});
    case WeightFormat::kW6AffineG16: return function(W6AffineG16{});
    case WeightFormat::kW8: return function(W8{});
    default: return;
  }
}

}  // namespace octavo
