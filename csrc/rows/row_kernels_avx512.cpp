#include "rows/row_kernels_impl.h"

namespace octavo {
extern const RowKernels kRowKernelsAvx512;
const RowKernels kRowKernelsAvx512 = kRowKernels;
}  // namespace octavo
