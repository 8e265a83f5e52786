#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"

// The passes over a vocabulary that sampling is made of; compiled once per instruction set. Rows
// are looked at in pieces of kSamplingPiece elements. NaN counts as minus infinity everywhere.
namespace mstar {

inline constexpr int64_t kSamplingPiece = 128;

// A row of n f32 or bf16 numbers.
struct SamplingInput {
  const void* data = nullptr;
  bool is_bf16 = false;
  int64_t n = 0;
};

struct SamplingKernels {
  // maxima[piece] of every piece; returns the largest.
  float (*piece_maxima)(const SamplingInput& x, float* maxima);

  // How many elements are >= threshold.
  int64_t (*count_at_least)(const SamplingInput& x, float threshold);

  // Elements >= threshold by rising index, from pieces whose maximum says there are some; returns
  // how many.
  int64_t (*collect)(const SamplingInput& x,
                     const float* maxima,
                     float threshold,
                     float* values,
                     int32_t* indices);

  // out[i] = exp((x[i] - shift) * scale); x <= shift, scale > 0.
  void (*exponentials)(const SamplingInput& x, float shift, float scale, float* out);

  // The same summed by piece; returns the sum of all.
  double (*exponential_sums)(const SamplingInput& x, float shift, float scale, float* sums);

  // Sum of the elements >= threshold, and how many they are.
  double (*mass_at_least)(const float* x, int64_t n, float threshold, int64_t* count);

  // softmax of a row; out f32 or bf16, may be x.
  void (*softmax)(const SamplingInput& x, void* out, bool out_is_bf16);

  // Standard normal numbers [begin, end) of the sequence of (seed, stream); both multiples of 4
  // or end the last. Bit-equal on every instruction set.
  void (*normals)(uint64_t seed, uint64_t stream, int64_t begin, int64_t end, float* out);
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(extern const SamplingKernels sampling_kernels;)
