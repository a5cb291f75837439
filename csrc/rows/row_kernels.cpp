#include "rows/row_kernels.h"

namespace octavo {

extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;

const RowKernels& row_kernels(Isa isa) { return isa == Isa::kAvx2 ? kRowKernelsAvx2 : kRowKernelsAvx512; }

}  // namespace octavo
