#include "mstar/kernels/cpu/isa.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr Isa kAll[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

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
      str_cat("[MSTAR_ISA] found \"", name, "\", expected portable, avx2, avx512 or avx512_bf16"));
}

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512_bf16";
  }
  return "unknown";
}

Isa best_isa() {
#if defined(__x86_64__)
  // The compiler's helpers also ask the operating system whether it saves the registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return Isa::kPortable;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni")) {
    return Isa::kAvx512;
  }
  return Isa::kAvx512Bf16;
#else
  return Isa::kPortable;
#endif
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
