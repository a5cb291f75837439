#include "rows/row_kernels_impl.h"

namespace octavo {
extern const RowKernels kRowKernelsAvx2;
const RowKernels kRowKernelsAvx2 = kRowKernels;
}  // namespace octavo
