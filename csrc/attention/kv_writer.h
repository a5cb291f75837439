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

struct KvWriter {
  // Writes heads of one token, by cache type. k and v: [kv_heads * head_dim] float32 from head 0 on, rounded to nearest even
  // for bf16 and int8. Different tokens and heads may be written by different threads at the same time.
  void (*by_type[3])(const KvLayout& layout, const TokenPlace& at, const float* k, const float* v);
  // Asks for the memory of a token that will be written soon: it lies in a hundred cache lines.
  void (*fetch)(const KvLayout& layout, const TokenPlace& at);

  void write(const KvLayout& layout, const TokenPlace& at, const float* k, const float* v) const {
    by_type[static_cast<int>(layout.type)](layout, at, k, v);
  }
};

const KvWriter& kv_writer(Isa isa);

}  // namespace octavo
