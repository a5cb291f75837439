#include "attention/kv_writer.h"

namespace octavo {

extern const KvWriter kKvWriterAvx2;
extern const KvWriter kKvWriterAvx512;

const KvWriter& kv_writer(Isa isa) { return isa == Isa::kAvx2 ? kKvWriterAvx2 : kKvWriterAvx512; }

}  // namespace octavo
