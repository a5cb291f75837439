// Row values: those that operations on rows alone write. In a step of few rows each thread makes them for itself, in memory
// of its own, so nobody waits for them; joint values, which linears and attention write together, all threads share.
#pragma once

#include <vector>

#include "runner/phases.h"

namespace octavo {

// By buffer: whether operations on rows alone write it.
std::vector<bool> row_buffers(const PhaseList& program);

// The same program with row values in buffers of their own. A program may write a row value into columns that a linear or
// attention has written or will write: q is rotated where it lies, a norm goes where attention's result was. Such a
// buffer gets a twin, of row values, and each operation reads the one that holds what it wants. Where an operation would
// read from both, or a linear add to a row value (a residual that began as an embedding), the buffer gets none and all of
// its values are joint. Phases that would write both kinds are cut in two.
PhaseList separate_row_values(const PhaseList& program);

}  // namespace octavo
