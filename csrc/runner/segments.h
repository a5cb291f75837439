// What a thread that keeps its own rows does between two waits for the others, and which values never leave it.
#pragma once

#include <cstddef>
#include <vector>

#include "runner/phases.h"

namespace octavo {

// Null for attention.
const Domain* domain_of(const Phase& phase);

// The phase after the segment that begins with `first`: up to it each thread reads only rows that it has written itself.
size_t segment_end(const std::vector<Phase>& phases, size_t first);

// By buffer: whether some row of it in `domain` is read in another segment than it was written in, or for another row.
// What the others hold is used up within a segment, so a thread needs them only for the rows that it is at.
std::vector<bool> lasting_buffers(const PhaseList& program, Domain domain);

}  // namespace octavo
