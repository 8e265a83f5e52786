#pragma once

#include "mstar/kernels/cpu/matmul_kernels.h"

// Block-quantized weights times activations rounded to int8, through the tile registers: the forms
// PackedX::kInt8Tiles and kInt8NibbleTiles of matmul_amx.cc's table.
namespace mstar::amx {

// Up to here vectors are as fast: unpacking and the way of sums through memory want many rows.
inline constexpr int64_t kFewestInt8TileRows = 33;

void run_int8(const MatmulProblem& problem, const MatmulRange& range);

void pack_int8_rows(const PackRowsParams& params, int64_t tile_begin, int64_t tile_end);

}  // namespace mstar::amx
