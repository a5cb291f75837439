#include "limits/limits.h"

namespace octavo {

extern const LimitLoops kLimitLoopsAvx2;
extern const LimitLoops kLimitLoopsAvx512;
extern const LimitLoops kLimitLoopsAvx512Bf16;
extern const LimitLoops kLimitLoopsAmx;

const LimitLoops& limit_loops(Isa isa) {
  switch (isa) {
    case Isa::kAvx2: return kLimitLoopsAvx2;
    case Isa::kAvx512Vnni: return kLimitLoopsAvx512;
    case Isa::kAvx512Bf16: return kLimitLoopsAvx512Bf16;
    case Isa::kAmx: return kLimitLoopsAmx;
  }
  return kLimitLoopsAvx2;
}

}  // namespace octavo
