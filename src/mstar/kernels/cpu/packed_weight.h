#pragma once

#include <cstdint>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/cpu/matmul_kernels.h"
#include "mstar/kernels/ops/matmul.h"

namespace mstar {

// Panels of `panel_width` output features; inside a panel, blocks of consecutive k in the layout
// that cpu/panel_reader-inl.h reads. Features beyond n and values beyond k are zero.
struct PackedWeight::Data {
  DType dtype = DType::kF32;  // kI8 is int8 with a scale per row
  int64_t n = 0;
  int64_t k = 0;
  Isa isa = Isa::kPortable;  // whose kernels read it
  bool int8_activations = false;
  int panel_width = 0;
  int64_t k_padded = 0;
  int64_t panel_bytes = 0;
  Tensor panels;      // u8 [num_panels * panel_bytes]
  Tensor row_scales;  // f32 [num_panels * panel_width], kI8 only

  WeightPanels view() const;

  // The form that the kernels want so many rows of activations of that type in.
  PackedX form_of(DType x, int64_t rows) const;
};

// k values in one block of a panel, and the block's bytes for each feature.
int panel_block_size(DType dtype);
int panel_block_bytes(DType dtype);

// The kernels of an instruction set.
const MatmulKernels& matmul_kernels(Isa isa);

}  // namespace mstar
