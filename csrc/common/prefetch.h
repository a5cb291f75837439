// Asks for cache lines ahead of time.
//
// In assembler, for GCC takes a function that only prefetches by its intrinsics for one without effects, and may drop its calls.
#pragma once

namespace octavo {
namespace {

// Into the first cache.
[[gnu::always_inline]] inline void prefetch_near(const void* line) {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(line)));
}
// Into the second one.
[[gnu::always_inline]] inline void prefetch_far(const void* line) {
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(line)));
}
// Into the first one, to be written.
[[gnu::always_inline]] inline void prefetch_to_write(const void* line) {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
}

}  // namespace
}  // namespace octavo
