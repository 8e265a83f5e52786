#pragma once

#include <cstdint>

namespace mstar {

// Instruction sets that kernels/cpu is compiled for, weakest first.
//   kAvx2        AVX2, FMA, F16C
//   kAvx512      and AVX-512 F, BW, DQ, VL
//   kAvx512Bf16  and AVX512_BF16, AVX512_VNNI
//   kAmx         and AMX_TILE, AMX_BF16, AMX_INT8: the kernels of kAvx512Bf16, but products of bf16
//                and, for many rows, of rounded activations go through the tiles
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// "portable", "avx2", "avx512", "avx512_bf16", "amx".
const char* to_string(Isa isa);

// The strongest set this processor and its operating system offer. The first call asks Linux for
// the tiles' registers, for the whole process.
Isa best_isa();

// What the kernels use: best_isa(), or the one that the environment variable MSTAR_ISA names.
// Decided at the first call. Throws Error(kInvalidArgument) for an unknown name or a set this
// processor lacks. Thread-safe.
Isa active_isa();

// For tests that compare the paths in one process: replaces active_isa(), which ops ask at every
// enqueue. Throws like MSTAR_ISA. Packed weights keep the layout they were packed for, so pack
// again after a change.
void set_active_isa(Isa isa);

// How far ahead of its use a weight that comes from memory is asked for, in bytes; 0 where the
// processor's own prefetchers do better. `unpacked`: codes of fewer than eight bits meet rounded
// activations, so that much arithmetic stands between two loads. Measured: 512 on Zen (2 to 10 %
// faster), 0 on Zen 3, where asking loses; on Intel's servers 1024 where codes are unpacked (5 to
// 15 % faster) and 0 elsewhere. Thread-safe.
int64_t weight_prefetch_bytes(bool unpacked);

// The entry of the active set; every SIMD file of kernels/cpu is compiled once per set, in the
// namespace of its name. kAmx has few files of its own (cpu/*_amx.cc), which are chosen where they
// are used.
template <typename T>
T by_isa(T portable, T avx2, T avx512, T avx512_bf16) {
  switch (active_isa()) {
    case Isa::kPortable: return portable;
    case Isa::kAvx2: return avx2;
    case Isa::kAvx512: return avx512;
    case Isa::kAvx512Bf16:
    case Isa::kAmx: return avx512_bf16;
  }
  return portable;
}

}  // namespace mstar

// MSTAR_BY_ISA(row_kernels): the active one of mstar::{portable, avx2, …}::row_kernels.
#if defined(__x86_64__)
#define MSTAR_BY_ISA(name)                  \
  ::mstar::by_isa(&::mstar::portable::name, \
                  &::mstar::avx2::name,     \
                  &::mstar::avx512::name,   \
                  &::mstar::avx512_bf16::name)
#else
#define MSTAR_BY_ISA(name) (&::mstar::portable::name)
#endif

// Declares `declaration` in each of the four namespaces:
//   MSTAR_DECLARE_PER_ISA(void row_kernel(const RowParams&, int task);)
#define MSTAR_DECLARE_PER_ISA(...) \
  namespace mstar::portable {      \
  __VA_ARGS__                      \
  }                                \
  namespace mstar::avx2 {          \
  __VA_ARGS__                      \
  }                                \
  namespace mstar::avx512 {        \
  __VA_ARGS__                      \
  }                                \
  namespace mstar::avx512_bf16 {   \
  __VA_ARGS__                      \
  }
