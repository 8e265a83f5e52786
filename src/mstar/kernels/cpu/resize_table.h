#pragma once

#include "mstar/kernels/cpu/resize_kernels.h"
#include "mstar/kernels/ops/resize.h"

namespace mstar {

struct ResizeAxis {
  int64_t in_size = 0;
  int64_t out_size = 0;
  ResizeFilter filter = ResizeFilter::kBilinear;  // not kNearest
  bool antialias = false;
};

// The most inputs an output of this axis takes.
int32_t max_taps(const ResizeAxis& axis);

// Fills the table: float weights as torch computes them in f32, or, where table.fixed is set, the
// 16-bit weights of its byte kernel, computed in double.
void fill_table(const ResizeAxis& axis, const ResizeTable& table);

// The input that output `to` repeats ("nearest-exact").
int64_t nearest_input(int64_t to, int64_t in_size, int64_t out_size);

}  // namespace mstar
