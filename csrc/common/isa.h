// Which instruction set the kernels of this process use: found by CPUID once, or forced lower by an option.
#pragma once

#include <string>

namespace octavo {

// Ordered: a machine that has one has all before it.
enum class Isa : int {
  kAvx2 = 0,        // AVX2 + FMA + F16C
  kAvx512Vnni = 1,  // AVX512 F/BW/VL/DQ + VNNI
  kAvx512Bf16 = 2,  // the same + AVX512-BF16
  kAmx = 3,         // the same + AMX tile/int8/bf16, with the kernel's permission
};

// The best set of this machine; never an emulated one. Throws std::runtime_error where not even AVX2 is there.
Isa detect_isa();

// True when the machine (and the operating system) can run `isa`.
bool isa_supported(Isa isa);

// Whether this is an AMD Zen 5 (family 1Ah), whose memory likes to be asked in a way of its own.
bool is_zen5();

// "avx2", "avx512_vnni", "avx512_bf16", "amx" <-> Isa. parse_isa throws std::invalid_argument with the allowed names.
const char* isa_name(Isa isa);
Isa parse_isa(const std::string& name);

}  // namespace octavo
