// For the kernels that multiply AMX tiles.
#pragma once

namespace octavo {
namespace {

// The tile intrinsics of GCC do not tell the compiler that they read memory: call this between writing by ordinary code
// and reading by tiles.
inline void order_memory() { asm volatile("" ::: "memory"); }

}  // namespace
}  // namespace octavo
