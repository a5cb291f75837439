// The KV cache: blocks of K and V, stored as the attention kernels read them.
//
// A block holds block_size tokens of every place (one place per layer of a KV group), contiguously:
//
//   block:  [place][K | V][KV head][unit]            K and V halves of a place start at fixed offsets
//   unit:   32 tokens where block_size is a multiple of 32 (a "tile"), else 8 tokens; D = head_dim padded to 32
//   K unit: [16-token group (8 in an 8-token unit)][D / 2 dim pairs][row of the group's tokens x 2 dims]
//   V unit: [D / 16][token pairs of the unit][row of 16 dims x 2 tokens]
//   row:    bf16: the two partners of a pair are neighbours (what AMX takes as B operand);
//           f32:  first all first partners, then all second ones (two vectors)
//           int8: like bf16, in bytes; behind its rows a K or V unit has a float32 scale for each of its tokens
//
// So an AMX tile of K (16 dim pairs x 16 tokens) or V (16 token pairs x 16 dims) in bf16 is 16 consecutive 64-byte rows.
//
// int8: a V row of a token and head is code * scale with scale = largest magnitude / 127 and codes in [-127, 127], rounded
// to nearest even. A K row is so after its rotation (scaled_rows.h), which the kernels give to queries too. A token's bytes
// depend on nothing but the token, so a block can be shared, copied and filled further at any time. A row of magnitudes
// below 1e-30 is zeros; one that is not finite has codes 0 and the scale NaN.
//
// Invariant: every V code in a cache is finite, whatever a model produced, and whether its slot is in use or not.
// Masked positions take part in the products with weight 0, and 0 x finite adds nothing, while 0 x NaN would poison rows
// that must not see the slot. Memory starts as zeros, and a KvWriter stores a token whose V row is not finite (or
// overflows bf16) as V = 0 with K = NaN: its score is NaN, so exactly the rows that see it become NaN. K and scales may be
// anything: scores of masked positions are replaced, not multiplied, and so are their weights times V's scale. K and V
// never share bytes, even between layers of different shapes. Whoever restores saved blocks must have got them from a cache
// of the same layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace octavo {

enum class KvType : int { kF32 = 0, kBf16 = 1, kInt8 = 2 };
constexpr const char* kKvTypeNames[] = {"float32", "bfloat16", "int8"};

// The type of a name. Throws std::invalid_argument that says which there are.
KvType parse_kv_type(const std::string& name);

// What a cache must hold. Layers of different shapes share places: give the maxima.
struct KvShape {
  int places;    // layers per KV group
  int kv_heads;  // most KV heads of a layer
  int head_dim;  // largest head of a layer, 1 to 512
  int block_size;  // a multiple of 8 from 8 to 65536: engines offer up to 256, benchmarks a whole context
  KvType type;
};

// Derived sizes in bytes; plain data, read by the kernels.
struct KvLayout {
  KvType type;
  int block_size;
  int unit;              // tokens per unit: 32 or 8
  int64_t element_bytes;
  int64_t scale_bytes;   // of a token's K (or V) row: 4 in int8, else 0
  int64_t half_bytes;    // K (or V) of a place: all KV heads
  int64_t place_bytes;   // 2 * half_bytes
  int64_t block_bytes;   // a multiple of 64

  // Bytes of one token's K (or V) of one head.
  int64_t row_bytes(int padded_dim) const { return padded_dim * element_bytes + scale_bytes; }
};

// The sizes that a shape leads to. Throws std::invalid_argument for a shape out of its limits.
KvLayout make_layout(const KvShape& shape);

constexpr int kKvTile = 32;  // tokens per kernel tile
constexpr int padded_head_dim(int head_dim) { return (head_dim + 31) / 32 * 32; }

class KvCache {
 public:
  // Reserves address space; memory is committed at the first touch. Throws std::invalid_argument for a shape out of its
  // limits and std::bad_alloc where the address space cannot be had.
  KvCache(const KvShape& shape, int64_t num_blocks);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvShape& shape() const { return shape_; }
  const KvLayout& layout() const { return layout_; }
  int64_t num_blocks() const { return num_blocks_; }
  int64_t reserved_bytes() const { return num_blocks_ * layout_.block_bytes; }
  char* block(int64_t id) const { return base_ + id * layout_.block_bytes; }
  // Of a layer, in a block.
  char* start(int place, int64_t id) const { return block(id) + place * layout_.place_bytes; }

  // Commits the memory of blocks [first, first + count) before they are written, what they hold unchanged: the first touch
  // of a huge page takes a virtual machine milliseconds. Only a hint: some systems do not do it. Throws std::out_of_range.
  void commit(int64_t first, int64_t count);

  // Gives the memory of blocks [first, first + count) back to the system: whole pages inside the range become zeros,
  // its ragged edges keep their bytes. Throws std::out_of_range.
  void release(int64_t first, int64_t count);

  // Copies all places of a block. Throws std::out_of_range.
  void copy_block(int64_t source, int64_t destination);

  // True when a layer of this shape fits into a place.
  bool holds(int kv_heads, int head_dim) const;

 private:
  void check_range(int64_t first, int64_t count) const;

  KvShape shape_;
  KvLayout layout_;
  int64_t num_blocks_;
  char* base_ = nullptr;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
};

// KV heads [first, end) of a layer.
struct HeadRange {
  int first, end;
};

}  // namespace octavo
