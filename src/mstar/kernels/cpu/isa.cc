#include "mstar/kernels/cpu/isa.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mstar {

namespace {

constexpr Isa kAll[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};

std::atomic<int> chosen{-1};

void check_offered(Isa isa) {
  if (isa > best_isa()) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[MSTAR_ISA] this processor has no ",
                        to_string(isa),
                        "; its best is ",
                        to_string(best_isa())));
  }
}

#if defined(__x86_64__) && defined(__linux__)
// The tiles' registers are 8 KiB of state that Linux saves for those who asked for them
// (Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
  constexpr unsigned kAmxBf16 = 1U << 22;  // CPUID 7.0 edx
  constexpr unsigned kAmxTile = 1U << 24;
  constexpr unsigned kAmxInt8 = 1U << 25;
  constexpr unsigned kNeeded = kAmxBf16 | kAmxTile | kAmxInt8;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kNeeded) != kNeeded) {
    return false;
  }
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool may_use_tiles() {
  return false;
}
#endif

#if defined(__x86_64__)
// Clang 14 does not know the word for its helper. The registers are AVX's.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Zen and Zen+: family 17h, models below 30h (AMD, "Revision Guide for AMD Family 17h").
bool is_first_zen() {
  if (!__builtin_cpu_is("amd")) {
    return false;
  }
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  __get_cpuid(1, &eax, &ebx, &ecx, &edx);
  const unsigned family = ((eax >> 8) & 15U) + ((eax >> 20) & 255U);
  const unsigned model = ((eax >> 4) & 15U) | ((eax >> 12) & 0xf0U);
  return family == 0x17 && model < 0x30;
}

bool is_intel_server() {
  return __builtin_cpu_is("intel") && best_isa() >= Isa::kAvx512Bf16;
}

Isa find_best_isa() {
  // The compiler's helpers also ask the operating system whether it saves the registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) {
    return Isa::kPortable;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni")) {
    return Isa::kAvx512;
  }
  return may_use_tiles() ? Isa::kAmx : Isa::kAvx512Bf16;
}
#else
bool is_first_zen() {
  return false;
}

bool is_intel_server() {
  return false;
}

Isa find_best_isa() {
  return Isa::kPortable;
}
#endif

Isa from_environment() {
  const char* name = std::getenv("MSTAR_ISA");
  if (name == nullptr || *name == '\0') {
    return best_isa();
  }
  for (const Isa isa : kAll) {
    if (std::string_view(name) == to_string(isa)) {
      check_offered(isa);
      return isa;
    }
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      str_cat(
          "[MSTAR_ISA] found \"", name, "\", expected portable, avx2, avx512, avx512_bf16 or amx"));
}

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512_bf16";
    case Isa::kAmx: return "amx";
  }
  return "unknown";
}

Isa best_isa() {
  static const Isa best = find_best_isa();
  return best;
}

int64_t weight_prefetch_bytes(bool unpacked) {
  static const int64_t always = is_first_zen() ? 512 : 0;
  static const int64_t where_unpacked = is_intel_server() ? 1024 : always;
  return unpacked ? where_unpacked : always;
}

Isa active_isa() {
  const int isa = chosen.load(std::memory_order_relaxed);
  if (isa >= 0) {
    return static_cast<Isa>(isa);
  }
  const Isa decided = from_environment();
  chosen.store(static_cast<int>(decided), std::memory_order_relaxed);
  return decided;
}

void set_active_isa(Isa isa) {
  check_offered(isa);
  chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace mstar
