#include "attention/kv_writer.h"

namespace octavo {

extern const KvWriter kKvWriterAvx2;
extern const KvWriter kKvWriterAvx512;

void KvWriter::write(const KvLayout& layout, TokenPlace at, int64_t count, KvRows rows) const {
  const bool groups = bf16_group != nullptr && layout.type == KvType::kBf16 && layout.unit == kKvTile;
  for (int64_t written; count > 0; count -= written) {
    const bool whole = groups && at.offset % kKvGroup == 0 && count >= kKvGroup;
    (whole ? bf16_group : token[static_cast<int>(layout.type)])(layout, at, rows);
    written = whole ? kKvGroup : 1;
    at.offset += static_cast<int>(written);
    rows.k += written * rows.k_stride;
    rows.v += written * rows.v_stride;
  }
}

const KvWriter& kv_writer(Isa isa) { return isa == Isa::kAvx2 ? kKvWriterAvx2 : kKvWriterAvx512; }

}  // namespace octavo
