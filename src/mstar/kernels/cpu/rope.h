#pragma once

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/cpu/rows.h"

namespace mstar {

inline constexpr int kMaxRopeFrequencies = 512;

struct RopeTableParams {
  const void* positions = nullptr;  // i32, i64 or f32
  int64_t axis_stride = 0;          // from one axis to the next; 0 with one axis
  int64_t token_stride = 1;
  DType positions_dtype = DType::kI64;
  const float* inv_freq = nullptr;  // [half]
  float* cos = nullptr;             // [tokens, half]
  float* sin = nullptr;
  int64_t tokens = 0;
  int64_t half = 0;
  int num_tasks = 1;
  uint8_t axis[kMaxRopeFrequencies] = {};  // which of the positions each frequency follows
};

struct RopeParams {
  const float* cos = nullptr;  // [tokens, half]
  const float* sin = nullptr;
  void* x = nullptr;
  DType dtype = DType::kF32;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int64_t tokens = 0;
  int64_t num_heads = 0;
  int64_t half = 0;          // rotary_dim / 2
  bool interleave = false;   // pairs (2i, 2i + 1), else (i, i + half)
  bool round_table = false;  // bf16: round tables and products
  int num_tasks = 1;
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(void rope_table(const RopeTableParams& p, int task);
                      void apply_rope(const RopeParams& p, int task);)
