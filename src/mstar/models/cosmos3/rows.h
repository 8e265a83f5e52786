// Row loops that only this family needs, compiled once per instruction set. Plain data only; they
// never throw, allocate or log.
#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"

namespace mstar {

// A clip [t, h, w, c], contiguous.
struct FoldSide {
  int64_t t = 0, h = 0, w = 0, c = 0;
};

// Time and space between two clips of one element type, `time` frames and `space` x `space` pixels
// of the finer one for each of the coarser. Rows are rows of pixels of `out`.
struct FoldParams {
  const void* x = nullptr;
  void* out = nullptr;  // added to
  bool narrow = false;  // bf16, else f32
  FoldSide in;
  FoldSide to;
  int64_t time = 1;
  int64_t space = 1;
  int64_t dropped = 0;  // frames left out in front
  int64_t rows = 0;
  int num_tasks = 1;
};

// out = x + sin(freq x)^2 * inv_amplitude, [rows, dim].
struct SnakeParams {
  const void* x = nullptr;
  void* out = nullptr;
  bool narrow = false;
  const float* freq = nullptr;
  const float* inv_amplitude = nullptr;
  int64_t rows = 0;
  int64_t dim = 0;
  int num_tasks = 1;
};

// x[i] += row where mask[i] != 0; the row is rounded to x's type first.
struct AddRowParams {
  const float* row = nullptr;
  const uint8_t* mask = nullptr;
  void* x = nullptr;
  bool narrow = false;
  int64_t rows = 0;
  int64_t dim = 0;
  int num_tasks = 1;
};

// Every head of x [tokens, heads, dim] normed over its dim, then turned by its token's angles: what
// rms_norm and apply_rope give one after the other, bit for bit, in one pass.
struct NormRopeParams {
  void* x = nullptr;
  bool narrow = false;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t dim = 0;  // a multiple of 32, at most 256
  int64_t token_stride = 0;
  const void* weight = nullptr;  // [dim]
  bool narrow_weight = false;
  bool round_before_weight = false;
  float eps = 0.0F;
  const float* cos = nullptr;  // [tokens, dim / 2]
  const float* sin = nullptr;
  int num_tasks = 1;
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(void add_averaged_down(const FoldParams& p, int task);
                      void add_duplicated_up(const FoldParams& p, int task);
                      void snake_rows(const SnakeParams& p, int task);
                      void add_row_where(const AddRowParams& p, int task);
                      void norm_rope(const NormRopeParams& p, int task);)
