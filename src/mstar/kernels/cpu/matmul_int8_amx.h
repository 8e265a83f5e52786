#pragma once

#include "mstar/kernels/cpu/matmul_kernels.h"

// Block-quantized weights times activations rounded to int8, through the tile registers: the forms
// PackedX::kInt8Tiles and kInt8NibbleTiles of matmul_amx.cc's table.
namespace mstar::amx {

// Fewer rows would unpack as many codes as they multiply.
inline constexpr int64_t kFewestInt8TileRows = 9;

void run_int8(const MatmulProblem& problem, const MatmulRange& range);

void pack_int8_rows(const PackRowsParams& params, int64_t tile_begin, int64_t tile_end);

}  // namespace mstar::amx
