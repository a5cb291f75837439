#include "linear/pack.h"

#include "linear/block_codes.h"

namespace octavo {
namespace {

// One thread's scratch: the codes of 16 rows, their scales and offsets, and one row of floats.
struct Scratch {
  int64_t kp;
  uint8_t* codes;
  float *scale, *offset, *values;
  int16_t* scales;  // of 16 rows: per group e and z

  Scratch(uint8_t* base, int64_t k) : kp(padded_k(k)) {
    codes = base;
    scale = reinterpret_cast<float*>(codes + kPanel * kp);
    offset = scale + kp / 16;
    values = offset + kp / 16;
    scales = reinterpret_cast<int16_t*>(values + kp);
  }
  // 16 code bytes, 2/16 floats of scales, 1 float and 16/16 pairs of int16 for each input.
  static int64_t bytes(int64_t k) { return padded_k(k) * (kPanel + 4) + padded_k(k) / 2 + padded_k(k) * 4; }
};

bool all_finite(const float* values, int64_t count) {
  // x - x is 0 for a finite x, else NaN: the sum tells.
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += values[i] - values[i];
  return sum == 0.0f;
}

float magnitude(float x) { return x < 0.0f ? -x : x; }
float larger(float a, float b) { return a > b ? a : b; }

// e for every group of one row such that scale is about D*e; returns D.
float encode_symmetric(const float* scale, int64_t groups, int code_maximum, int limit, int16_t* ez) {
  float largest = 0.0f;
  for (int64_t g = 0; g < groups; ++g) largest = larger(largest, magnitude(scale[g]));
  const double inverse = largest > 0.0f ? (limit / code_maximum) / static_cast<double>(largest) : 0.0;
  for (int64_t g = 0; g < groups; ++g) {
    ez[2 * g] = static_cast<int16_t>(_mm_cvtsd_si32(_mm_set_sd(scale[g] * inverse)));
    ez[2 * g + 1] = 0;
  }
  return largest / static_cast<float>(limit / code_maximum);
}

// e and z for every group of one row. z makes up for the rounding of e at the middle of the codes.
float encode_affine(const float* scale, const float* offset, int64_t groups, int code_maximum, int limit, int16_t* ez) {
  float largest = 0.0f;
  for (int64_t g = 0; g < groups; ++g) {
    const float end = scale[g] * static_cast<float>(code_maximum) + offset[g];
    largest = larger(largest, larger(magnitude(offset[g]), magnitude(end)));
  }
  // Rounding moves the ends of a group by less than this.
  const int margin = code_maximum / 2 + 1;
  const float d = largest / static_cast<float>(limit - margin);
  const double inverse = largest > 0.0f ? (limit - margin) / static_cast<double>(largest) : 0.0;
  const double middle = code_maximum / 2.0;
  for (int64_t g = 0; g < groups; ++g) {
    const int e = _mm_cvtsd_si32(_mm_set_sd(scale[g] * inverse));
    const double z = (offset[g] + middle * scale[g]) * inverse - middle * e;
    ez[2 * g] = static_cast<int16_t>(e);
    ez[2 * g + 1] = static_cast<int16_t>(_mm_cvtsd_si32(_mm_set_sd(z)));
  }
  return d;
}

__m128i load128(const uint8_t* bytes) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)); }

// The 4 dwords of each of 4 rows, transposed: dword i of all of them goes to to + 64 * i.
void store_transposed(__m128i a, __m128i b, __m128i c, __m128i d, uint8_t* to) {
  const __m128i ab_low = _mm_unpacklo_epi32(a, b), cd_low = _mm_unpacklo_epi32(c, d);
  const __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
  __m128i* const out = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(out, _mm_unpacklo_epi64(ab_low, cd_low));
  _mm_storeu_si128(out + 4, _mm_unpackhi_epi64(ab_low, cd_low));
  _mm_storeu_si128(out + 8, _mm_unpacklo_epi64(ab_high, cd_high));
  _mm_storeu_si128(out + 12, _mm_unpackhi_epi64(ab_high, cd_high));
}

// The codes of 16 rows, one after the other, into the order of a panel with 6 bits.
void write_six_bits(const uint8_t* codes, int64_t kp, uint8_t* to) {
  const uint32_t low = 0x0f0f0f0f, high = 0x03030303;  // of each code, before and after its low bits are gone
  for (int64_t k = 0; k < kp; k += 16, to += 3 * 4 * kPanel)
    for (int column = 0; column < kPanel; ++column) {
      uint32_t quad[4];
      std::memcpy(quad, codes + column * kp + k, 16);
      const uint32_t vectors[] = {(quad[0] & low) | (quad[2] & low) << 4, (quad[1] & low) | (quad[3] & low) << 4,
                                  (quad[0] >> 4 & high) | (quad[1] >> 4 & high) << 2 | (quad[2] >> 4 & high) << 4 |
                                      (quad[3] >> 4 & high) << 6};
      for (int i = 0; i < 3; ++i) std::memcpy(to + 64 * i + 4 * column, vectors + i, 4);
    }
}

// The codes of 16 rows, one after the other, into the order of the panel: 4 vectors of 64 bytes at a time, 4 columns of them
// together. A row's bytes are read 16 at a time, as rows of 4,096 bytes would otherwise throw each other out of the cache.
template <class F>
void write_codes(const uint8_t* codes, int64_t kp, uint8_t* to) {
  if constexpr (F::kBits == 6) return write_six_bits(codes, kp, to);
  constexpr int kInputs = F::kBits == 4 ? 32 : 16;  // of the 4 vectors
  const auto read = [](const uint8_t* from) {
    if constexpr (F::kBits == 4) return _mm_or_si128(load128(from), _mm_slli_epi16(load128(from + 16), 4));
    return load128(from);
  };
  for (int64_t k = 0; k < kp; k += kInputs, to += 4 * 4 * kPanel)
    for (int column = 0; column < kPanel; column += 4) {
      const uint8_t* const from = codes + column * kp + k;
      store_transposed(read(from), read(from + kp), read(from + 2 * kp), read(from + 3 * kp), to + 4 * column);
    }
}

template <class F>
void write_scales(const int16_t* ez, int64_t groups, uint8_t* to) {
  int16_t* word = reinterpret_cast<int16_t*>(to);
  for (int64_t g = 0; g < groups; ++g)
    for (int column = 0; column < kPanel; ++column) {
      const int16_t* const from = ez + 2 * (column * groups + g);
      *word++ = from[0];
      if constexpr (F::kAffine) *word++ = from[1];
    }
}

template <class F>
int64_t pack_integers(F, const PackSource& source, int64_t panel, uint8_t* to, const Scratch& scratch) {
  const int64_t kp = scratch.kp, groups = kp / F::kGroup, used = source.k / F::kGroup;
  const int64_t row_bytes = source.k / kind_block_values(source.kind) * kind_block_bytes(source.kind);
  const CodeRange range = code_range(source.kind);
  float* const row_scales = reinterpret_cast<float*>(to + F::row_scale_offset(kp));
  for (int column = 0; column < kPanel; ++column) {
    const int64_t row = panel * kPanel + column;
    uint8_t* const codes = scratch.codes + column * kp;
    int16_t* const ez = scratch.scales + 2 * column * groups;
    std::memset(ez, 0, static_cast<size_t>(4 * groups));
    row_scales[column] = 0.0f;
    if (row >= source.n) {
      std::memset(codes, 0, static_cast<size_t>(kp));
      continue;
    }
    const int64_t from = source.row_order ? source.row_order[row] : row;
    decode_row(source.kind, source.raw + from * row_bytes, source.k, {codes, scratch.scale, scratch.offset});
    std::memset(codes + source.k, 0, static_cast<size_t>(kp - source.k));
    if (!all_finite(scratch.scale, used) || (F::kAffine && !all_finite(scratch.offset, used))) return row;
    if constexpr (F::kAffine)
      row_scales[column] = encode_affine(scratch.scale, scratch.offset, used, range.maximum, F::kLimit, ez);
    else
      row_scales[column] = encode_symmetric(scratch.scale, used, range.maximum, F::kLimit, ez);
  }
  write_codes<F>(scratch.codes, kp, to);
  write_scales<F>(scratch.scales, groups, to + F::scale_offset(kp));
  return -1;
}

// A row of any kind as floats.
void decode_floats(const PackSource& source, const uint8_t* raw, const Scratch& scratch) {
  float* const values = scratch.values;
  switch (source.kind) {
    case TensorKind::kF32: std::memcpy(values, raw, static_cast<size_t>(source.k) * 4); return;
    case TensorKind::kF16:
      for (int64_t i = 0; i < source.k; ++i) values[i] = half_at(raw + 2 * i);
      return;
    case TensorKind::kBF16:
      for (int64_t i = 0; i < source.k; ++i) {
        uint16_t half;
        std::memcpy(&half, raw + 2 * i, 2);
        const uint32_t bits = static_cast<uint32_t>(half) << 16;
        std::memcpy(values + i, &bits, 4);
      }
      return;
    default: break;
  }
  const CodeRange range = code_range(source.kind);
  decode_row(source.kind, raw, source.k, {scratch.codes, scratch.scale, scratch.offset});
  for (int64_t i = 0; i < source.k; ++i) {
    const float scale = scratch.scale[i / range.group];
    values[i] = range.affine ? scale * scratch.codes[i] + scratch.offset[i / range.group]
                             : scale * (static_cast<int>(scratch.codes[i]) - range.offset);
  }
}

uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// kF32: [kp][16] floats. kBf16: [kp/2][16][2], the tile order of tdpbf16ps.
int64_t pack_floats(WeightFormat format, const PackSource& source, int64_t panel, uint8_t* to, const Scratch& scratch) {
  const int64_t kp = scratch.kp, values = kind_block_values(source.kind);
  const int64_t row_bytes = source.k / values * kind_block_bytes(source.kind);
  std::memset(to, 0, static_cast<size_t>(kp * kPanel * (format == WeightFormat::kF32 ? 4 : 2)));
  for (int column = 0; column < kPanel; ++column) {
    const int64_t row = panel * kPanel + column;
    if (row >= source.n) break;
    decode_floats(source, source.raw + (source.row_order ? source.row_order[row] : row) * row_bytes, scratch);
    if (!all_finite(scratch.values, source.k)) return row;
    if (format == WeightFormat::kF32) {
      float* const out = reinterpret_cast<float*>(to) + column;
      for (int64_t i = 0; i < source.k; ++i) out[i * kPanel] = scratch.values[i];
    } else {
      uint16_t* const out = reinterpret_cast<uint16_t*>(to) + 2 * column;
      for (int64_t i = 0; i < source.k; ++i) out[i / 2 * 2 * kPanel + i % 2] = to_bf16(scratch.values[i]);
    }
  }
  return -1;
}

}  // namespace

int64_t pack_scratch_bytes(int64_t k) { return (Scratch::bytes(k) + 63) / 64 * 64; }

int64_t pack_panel_avx2(WeightFormat format, const PackSource& source, int64_t panel, uint8_t* to, uint8_t* scratch) {
  const Scratch parts(scratch, source.k);
  int64_t bad_row = -1;
  if (is_integer(format))
    visit_int_format(format, [&](auto f) { bad_row = pack_integers(f, source, panel, to, parts); });
  else
    bad_row = pack_floats(format, source, panel, to, parts);
  return bad_row;
}

}  // namespace octavo
