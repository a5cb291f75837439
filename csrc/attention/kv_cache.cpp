#include "attention/kv_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

void require(bool ok, const char* name, int64_t value, const char* limit) {
  if (!ok) throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", must be " + limit);
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

}  // namespace octavo
