#include "attention/kv_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "attention/scaled_rows.h"

namespace octavo {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

void require(bool ok, const char* name, int64_t value, const char* limit) {
  if (!ok) throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", must be " + limit);
}

uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Round to nearest even; a NaN stays one.
uint16_t to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// How a cache type stores a number, and where partners of a pair lie in a row of `width` pairs.
struct Bf16Store {
  using Element = uint16_t;
  static constexpr Element kNan = 0x7fc0;
  static Element encode(float x) { return to_bf16(x); }
  static bool non_finite(Element e) { return (e & 0x7f80u) == 0x7f80u; }
  static constexpr int pair_step(int) { return 2; }
  static constexpr int partner_step(int) { return 1; }
};

struct F32Store {
  using Element = uint32_t;
  static constexpr Element kNan = 0x7fc00000u;
  static Element encode(float x) { return float_bits(x); }
  static bool non_finite(Element e) { return (e & 0x7f800000u) == 0x7f800000u; }
  static constexpr int pair_step(int) { return 1; }
  static constexpr int partner_step(int width) { return width; }
};

// Codes that share a scale, which is kept beside them.
struct Int8Store {
  using Element = int8_t;
  static constexpr int pair_step(int) { return 2; }
  static constexpr int partner_step(int) { return 1; }
};

// Encodes a row with its padding; true when a number in it is not finite.
template <class Store>
bool encode_row(const float* x, int head_dim, int padded, typename Store::Element* row) {
  int bad = 0;
  for (int d = 0; d < head_dim; ++d) {
    row[d] = Store::encode(x[d]);
    bad |= Store::non_finite(row[d]);
  }
  for (int d = head_dim; d < padded; ++d) row[d] = 0;
  return bad != 0;
}

// token: place of the token in its unit of `unit` tokens.
template <class Store>
void store_k(const typename Store::Element* row, int padded, int unit, int token, typename Store::Element* k) {
  const int width = unit < 16 ? unit : 16;
  k += (token / width) * padded * width + (token % width) * Store::pair_step(width);
  const int partner = Store::partner_step(width);
  for (int pair = 0; pair < padded / 2; ++pair, k += 2 * width) {
    k[0] = row[2 * pair];
    k[partner] = row[2 * pair + 1];
  }
}

template <class Store>
void store_v(const typename Store::Element* row, int padded, int unit, int token, typename Store::Element* v) {
  v += (token / 2) * 32 + (token % 2) * Store::partner_step(16);
  for (int d = 0; d < padded; d += 16, v += unit * 16)
    for (int i = 0; i < 16; ++i) v[i * Store::pair_step(16)] = row[d + i];
}

template <class Store>
void write_token(const KvLayout& layout, char* place, HeadRange heads, int head_dim, const float* k, const float* v,
                 int offset) {
  using Element = typename Store::Element;
  const int padded = padded_head_dim(head_dim), unit = layout.unit;
  const int64_t unit_elements = int64_t{unit} * padded;
  const int64_t head_elements = int64_t{layout.block_size} * padded;
  const int64_t first_unit = heads.first * head_elements + offset / unit * unit_elements;
  Element* k_unit = reinterpret_cast<Element*>(place) + first_unit;
  Element* v_unit = reinterpret_cast<Element*>(place + layout.half_bytes) + first_unit;
  Element row[512];
  for (int head = heads.first; head < heads.end; ++head, k_unit += head_elements, v_unit += head_elements) {
    const bool poisoned = encode_row<Store>(v + head * head_dim, head_dim, padded, row);
    if (poisoned) std::memset(row, 0, sizeof row);
    store_v<Store>(row, padded, unit, offset % unit, v_unit);
    encode_row<Store>(k + head * head_dim, head_dim, padded, row);
    if (poisoned) row[0] = Store::kNan;  // q * NaN = NaN whatever q is: one is enough
    store_k<Store>(row, padded, unit, offset % unit, k_unit);
  }
}

void write_scaled_token(const KvLayout& layout, char* place, HeadRange heads, int head_dim, const float* k, const float* v,
                        int offset) {
  const int padded = padded_head_dim(head_dim), unit = layout.unit, token = offset % unit;
  const int64_t unit_bytes = unit * layout.row_bytes(padded), codes_bytes = int64_t{unit} * padded;
  const int64_t head_bytes = layout.block_size / unit * unit_bytes;
  char* k_unit = place + heads.first * head_bytes + offset / unit * unit_bytes;
  char* v_unit = k_unit + layout.half_bytes;
  int8_t row[512];
  float rotated[512];
  for (int head = heads.first; head < heads.end; ++head, k_unit += head_bytes, v_unit += head_bytes) {
    float v_scale = encode_scaled<int8_t, 127>(v + head * head_dim, head_dim, padded, row);
    store_v<Int8Store>(row, padded, unit, token, reinterpret_cast<int8_t*>(v_unit));
    std::memcpy(rotated, k + head * head_dim, head_dim * sizeof(float));
    rotate(rotated, head_dim);
    float k_scale = encode_scaled<int8_t, 127>(rotated, head_dim, padded, row);
    store_k<Int8Store>(row, padded, unit, token, reinterpret_cast<int8_t*>(k_unit));
    if (std::isnan(v_scale)) {
      k_scale = v_scale;
      v_scale = 0.0f;
    }
    reinterpret_cast<float*>(k_unit + codes_bytes)[token] = k_scale;
    reinterpret_cast<float*>(v_unit + codes_bytes)[token] = v_scale;
  }
}

}  // namespace

KvType parse_kv_type(const std::string& name) {
  for (KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8})
    if (name == kKvTypeNames[static_cast<int>(type)]) return type;
  throw std::invalid_argument("KV dtype is '" + name + "', must be float32, bfloat16 or int8");
}

KvLayout make_layout(const KvShape& shape) {
  require(shape.places >= 1, "places", shape.places, "at least 1");
  require(shape.kv_heads >= 1, "kv_heads", shape.kv_heads, "at least 1");
  require(shape.head_dim >= 1 && shape.head_dim <= 512, "head_dim", shape.head_dim, "between 1 and 512");
  require(shape.block_size >= 8 && shape.block_size <= 65536 && shape.block_size % 8 == 0, "block_size", shape.block_size,
          "a multiple of 8 between 8 and 65536");
  KvLayout layout{};
  layout.type = shape.type;
  layout.block_size = shape.block_size;
  layout.unit = shape.block_size % kKvTile == 0 ? kKvTile : 8;
  layout.element_bytes = shape.type == KvType::kInt8 ? 1 : shape.type == KvType::kBf16 ? 2 : 4;
  layout.scale_bytes = shape.type == KvType::kInt8 ? sizeof(float) : 0;
  layout.half_bytes =
      int64_t{shape.kv_heads} * shape.block_size * layout.row_bytes(padded_head_dim(shape.head_dim));
  layout.place_bytes = 2 * layout.half_bytes;
  layout.block_bytes = shape.places * layout.place_bytes;
  return layout;
}

KvCache::KvCache(const KvShape& shape, int64_t num_blocks)
    : shape_(shape), layout_(make_layout(shape)), num_blocks_(num_blocks) {
  require(num_blocks >= 1 && num_blocks <= INT32_MAX, "num_blocks", num_blocks, "between 1 and 2147483647");
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(num_blocks), static_cast<size_t>(layout_.block_bytes), &bytes) ||
      bytes > (size_t{1} << 46))
    throw std::bad_alloc();
  const bool huge = bytes >= 4 * kHugePage;
  mapping_bytes_ = bytes + (huge ? kHugePage : 0);
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  uintptr_t base = reinterpret_cast<uintptr_t>(mapping_);
  if (huge) {
    base = (base + kHugePage - 1) / kHugePage * kHugePage;
    madvise(reinterpret_cast<void*>(base), bytes, MADV_HUGEPAGE);  // only a hint: may fail where there are none
  }
  base_ = reinterpret_cast<char*>(base);
}

KvCache::~KvCache() { munmap(mapping_, mapping_bytes_); }

void KvCache::check_range(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || first + count > num_blocks_)
    throw std::out_of_range("blocks " + std::to_string(first) + " to " + std::to_string(first + count) +
                            " are not in a cache of " + std::to_string(num_blocks_));
}

void KvCache::commit(int64_t first, int64_t count) {
  check_range(first, count);
#ifdef MADV_POPULATE_WRITE
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(block(first)) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(block(first + count));
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
#endif
}

void KvCache::release(int64_t first, int64_t count) {
  check_range(first, count);
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(block(first)) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(block(first + count)) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void KvCache::copy_block(int64_t source, int64_t destination) {
  for (int64_t id : {source, destination})
    if (id < 0 || id >= num_blocks_)
      throw std::out_of_range("block " + std::to_string(id) + " is not in a cache of " + std::to_string(num_blocks_));
  if (source != destination) std::memcpy(block(destination), block(source), layout_.block_bytes);
}

bool KvCache::holds(int kv_heads, int head_dim) const {
  return kv_heads >= 1 && head_dim >= 1 && head_dim <= 512 &&
         kv_heads * layout_.row_bytes(padded_head_dim(head_dim)) <=
             shape_.kv_heads * layout_.row_bytes(padded_head_dim(shape_.head_dim));
}

void write_kv(const KvCache& cache, int place, HeadRange heads, int head_dim, const float* k, const float* v, int64_t block,
              int offset) {
  const KvLayout& layout = cache.layout();
  char* start = cache.block(block) + place * layout.place_bytes;
  if (layout.type == KvType::kInt8) {
    write_scaled_token(layout, start, heads, head_dim, k, v, offset);
  } else if (layout.type == KvType::kBf16) {
    write_token<Bf16Store>(layout, start, heads, head_dim, k, v, offset);
  } else {
    write_token<F32Store>(layout, start, heads, head_dim, k, v, offset);
  }
}

}  // namespace octavo
