// Which buffers share the memory of all rows of a step, because they never hold anything at the same time.
#pragma once

#include <array>
#include <vector>

#include "runner/phases.h"

namespace octavo {

// By buffer: the number of its room, from 0; -1 where no value of it lasts beyond a segment. `lasting`: by domain, as
// lasting_buffers() has it, of a program with separate row values.
//
// Buffers of one width share a room where each is written only when the others are not read any more. That holds row by
// row, in the order of the program, as every thread goes through the rows that it has at hand. Attention may write over its
// queries, column by column, for it has read a row's heads before it writes them. Of joint values there is one in a room:
// in steps of few rows these lie there alone, and who waits for whom (meetings.h) is reckoned by buffer.
std::vector<int> rooms(const PhaseList& program, const std::array<std::vector<bool>, 2>& lasting);

}  // namespace octavo
