// Columns that no operation takes together lie in buffers of their own, so that memory is taken for those only that need it.
#pragma once

#include "runner/phases.h"

namespace octavo {

// The same program, with each buffer cut into as many as no view spans the cuts of. Columns that no view names are in none.
// Queries and keys, rotated into one buffer, come apart: attention reads the queries of all rows, and nobody later keys.
PhaseList split_columns(const PhaseList& program);

}  // namespace octavo
