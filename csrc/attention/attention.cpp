#include "attention/attention.h"

namespace octavo {
namespace {

AttentionCall make_call(const AttentionPlan& plan, const KvCache& cache, int place, const float* q, int64_t ldq,
                        float* out, int64_t ldo, float scale, int thread) {
  const KvLayout& layout = cache.layout();
  AttentionCall call = plan.call(thread);
  call.place = cache.block(0) + place * layout.place_bytes;
  call.block_bytes = layout.block_bytes;
  call.half_bytes = layout.half_bytes;
  call.unit_bytes = layout.unit * layout.row_bytes(call.padded_dim);
  call.head_bytes = layout.block_size / layout.unit * call.unit_bytes;
  call.block_size = layout.block_size;
  call.unit = layout.unit;
  call.q = q;
  call.ldq = ldq;
  call.out = out;
  call.ldo = ldo;
  call.scale = scale;
  return call;
}

}  // namespace

void attention_phase1(Isa isa, const AttentionPlan& plan, const KvCache& cache, int place, const float* q, int64_t ldq,
                      float* out, int64_t ldo, float scale, int thread, Range fragments) {
  AttentionCall call = make_call(plan, cache, place, q, ldq, out, ldo, scale, thread);
  call.first_fragment = static_cast<int32_t>(fragments.begin);
  call.end_fragment = static_cast<int32_t>(fragments.end);
  const KvType type = cache.layout().type;
  if (isa == Isa::kAmx && type == KvType::kBf16) {
    attention_phase1_amx(call);
  } else if (isa == Isa::kAmx && type == KvType::kInt8) {
    attention_phase1_int8_amx(call);
  } else if (isa == Isa::kAvx512Bf16 && type == KvType::kBf16) {
    attention_phase1_avx512bf16(call);
  } else if (isa == Isa::kAvx2) {
    attention_phase1_avx2(call, type);
  } else {
    attention_phase1_avx512(call, type);
  }
}

void attention_phase2(Isa isa, const AttentionPlan& plan, const KvCache& cache, int place, const float* q, int64_t ldq,
                      float* out, int64_t ldo, float scale, int thread) {
  const AttentionCall call = make_call(plan, cache, place, q, ldq, out, ldo, scale, thread);
  if (isa == Isa::kAvx2) {
    attention_phase2_avx2(call);
  } else {
    attention_phase2_avx512(call);
  }
}

}  // namespace octavo
