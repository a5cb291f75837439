// Writing tokens into a KV cache. The bytes are the same on every instruction set.
#pragma once

#include <cstdint>

#include "attention/kv_cache.h"
#include "common/isa.h"

namespace octavo {

// The place of a token in a layer.
struct TokenPlace {
  char* start;  // of the layer, in the token's block
  HeadRange heads;
  int head_dim;
  int offset;   // in the block
};

// K and V of tokens: rows of [kv_heads * head_dim] float32, from head 0 on, with so many floats from one row to the next.
struct KvRows {
  const float *k, *v;
  int64_t k_stride, v_stride;
};

constexpr int kKvGroup = 16;  // tokens whose K share cache lines, from a multiple of it on, in blocks of whole tiles

struct KvWriter {
  using Write = void (*)(const KvLayout& layout, const TokenPlace& at, const KvRows& rows);

  Write token[3];    // one token, by cache type
  Write bf16_group;  // a whole group of K in bf16; nullptr: one token after the other
  // Asks for the memory of a token that will be written soon: it lies in a hundred cache lines.
  void (*fetch)(const KvLayout& layout, const TokenPlace& at);

  // Writes heads of `count` tokens of a block, from `at` on, rounded to nearest even for bf16 and int8. Different tokens and
  // heads may be written by different threads at the same time.
  void write(const KvLayout& layout, TokenPlace at, int64_t count, KvRows rows) const;
};

const KvWriter& kv_writer(Isa isa);

}  // namespace octavo
