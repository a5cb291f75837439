// Attention in float32 vectors over float caches, and in integer vectors (VNNI) over the int8 one.
#include "attention/simd_avx512.h"
#include "attention/driver.h"
#include "attention/integer_products.h"
#include "attention/products.h"

namespace octavo {

void attention_phase1_avx512(const AttentionCall& call, KvType type) {
  if (type == KvType::kInt8) {
    Worker<IntegerKernel<Avx512>>(call).run();
  } else if (type == KvType::kBf16) {
    Worker<VectorKernel<Avx512, uint16_t>>(call).run();
  } else {
    Worker<VectorKernel<Avx512, float>>(call).run();
  }
}

void attention_phase2_avx512(const AttentionCall& call) { merge_split_tasks<Avx512>(call); }

}  // namespace octavo
