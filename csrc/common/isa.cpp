#include "common/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>

namespace octavo {
namespace {

constexpr bool kEmulatedAmx = OCTAVO_EMULATED_AMX;  // see CMakeLists.txt

struct Cpuid {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid cpuid(uint32_t leaf, uint32_t subleaf) {
  Cpuid r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return Cpuid{};
  return r;
}

bool bit(uint32_t word, int index) { return (word >> index) & 1u; }

// The register state that the operating system saves and restores: without it the instructions must not be used.
uint64_t enabled_state() {
  if (!bit(cpuid(1, 0).ecx, 27)) return 0;  // OSXSAVE
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux hands out the 8 KiB of tile state only on request; a grant covers the threads of the whole process.
bool amx_permission() {
  constexpr long kArchReqXcompPerm = 0x1023, kXfeatureXtileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtileData) == 0;
}

bool find_zen5() {
  const Cpuid vendor = cpuid(0, 0), one = cpuid(1, 0);
  constexpr uint32_t kAuth = 0x68747541, kEnti = 0x69746e65, kCamd = 0x444d4163;  // "AuthenticAMD"
  const uint32_t family = (one.eax >> 8 & 15) + (one.eax >> 20 & 255);
  return vendor.ebx == kAuth && vendor.edx == kEnti && vendor.ecx == kCamd && family == 0x1a;
}

bool has_avx2() {
  const Cpuid one = cpuid(1, 0), seven = cpuid(7, 0);
  return (enabled_state() & 0x6) == 0x6 && bit(one.ecx, 12) && bit(one.ecx, 29) && bit(seven.ebx, 5);
}

bool has_avx512_vnni() {
  const Cpuid seven = cpuid(7, 0);
  return has_avx2() && (enabled_state() & 0xe6) == 0xe6 && bit(seven.ebx, 16) && bit(seven.ebx, 17) &&
         bit(seven.ebx, 30) && bit(seven.ebx, 31) && bit(seven.ecx, 11);
}

bool has_avx512_bf16() { return has_avx512_vnni() && bit(cpuid(7, 1).eax, 5); }

bool has_amx() {
  if (kEmulatedAmx) return has_avx512_bf16();
  const Cpuid seven = cpuid(7, 0);
  return has_avx512_bf16() && (enabled_state() & 0x60000) == 0x60000 && bit(seven.edx, 22) && bit(seven.edx, 24) &&
         bit(seven.edx, 25) && amx_permission();
}

}  // namespace

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::kAvx2: return has_avx2();
    case Isa::kAvx512Vnni: return has_avx512_vnni();
    case Isa::kAvx512Bf16: return has_avx512_bf16();
    case Isa::kAmx: return has_amx();
  }
  return false;
}

bool is_zen5() {
  static const bool found = find_zen5();
  return found;
}

Isa detect_isa() {
  for (Isa isa : {Isa::kAmx, Isa::kAvx512Bf16, Isa::kAvx512Vnni, Isa::kAvx2})
    if (isa_supported(isa) && !(kEmulatedAmx && isa == Isa::kAmx)) return isa;
  throw std::runtime_error("this CPU lacks AVX2, FMA or F16C, which the native executor needs at least");
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512Vnni: return "avx512_vnni";
    case Isa::kAvx512Bf16: return "avx512_bf16";
    case Isa::kAmx: return "amx";
  }
  return "?";
}

Isa parse_isa(const std::string& name) {
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAmx})
    if (name == isa_name(isa)) return isa;
  throw std::invalid_argument("instruction_set is '" + name + "', must be one of: avx2, avx512_vnni, avx512_bf16, amx");
}

}  // namespace octavo
