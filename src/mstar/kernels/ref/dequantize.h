#pragma once

#include <cstddef>
#include <cstdint>

#include "mstar/tensor/dtype.h"

namespace mstar {

// The codes and scales of up to 256 consecutive values of a block-quantized row, as integers:
//   value[k] = (d * scale[k / 16]) * code[k] + (m * min[k / 16])
// The product with d is exact in f32 for every type here, so the value is rounded once.
struct QuantizedBlock {
  float d = 0.0F;
  float m = 0.0F;    // the sign is folded in
  int8_t scale[16];  // 1 for the types without sub-blocks
  uint8_t min[16];   // 1 likewise; unused where the type has no minimum
  int8_t code[256];
};

// Takes one block of `dtype` (info(dtype).block_bytes at `bytes`) apart.
void read_block(DType dtype, const std::byte* bytes, QuantizedBlock& block);

// `num_elements` values (whole blocks) of any floating or quantized dtype as f32. Never fails:
// every bit pattern is a value. The slow twin of the kernels' readers, and what the checkpoint
// readers decode with.
void dequantize(DType dtype, const std::byte* bytes, int64_t num_elements, float* out);

}  // namespace mstar
