#include "attention/kv_writer_impl.h"

namespace octavo {

extern const KvWriter kKvWriterAvx2;
const KvWriter kKvWriterAvx2{{write_token<F32Store>, write_token<Bf16Store>, write_scaled_token}, nullptr, fetch_token};

}  // namespace octavo
