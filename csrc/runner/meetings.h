// Where the threads must meet in a step of few rows, which they repeat.
//
// Such a step runs so: every thread does all operations on rows that write row values (row_values.h), on all rows, into
// memory of its own, as it prepares the rows that linears read. Linears, attention, and operations on rows that write joint
// values are shared out, and write to memory that all threads see. So two phases may run at once but where
//
//   - one reads joint columns that another one writes, before or after it: linears and attention each write a share of
//     the columns that everybody reads then;
//   - both write the same joint columns: their shares need not be the same;
//   - one reads K and V that another one writes, but for the attention whose plan says who writes which heads
//     (WriteKvRow::plan): there each thread writes those that it then reads, and AttentionPlan::shares_new_tokens() tells
//     of the steps in which that is not so;
//   - it rotates, and the step's angles, which are shared out, are not known to be complete.
//
// Threads that meet leave all of this behind them. What each keeps for itself is in nobody's way.
#pragma once

#include <vector>

#include "runner/phases.h"

namespace octavo {

// By phase of a program with separate row values: whether the threads meet after it. They do after the last one.
// meet_at_start: set to whether they meet before the first one.
std::vector<bool> meetings(const PhaseList& program, bool& meet_at_start);

}  // namespace octavo
