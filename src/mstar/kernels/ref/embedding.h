#pragma once

#include "mstar/kernels/cpu/embedding.h"

namespace mstar::ref {

void embedding(const RowMoveParams& p, int task);

// The table in a GGUF block type: its rows are decoded as they are fetched. Has no faster twin: it
// reads a thousandth of what the matmuls of the same step read.
void quantized_embedding(const RowMoveParams& p, int task);

void gather_rows(const RowMoveParams& p, int task);
void scatter_rows(const RowMoveParams& p, int task);
void scatter_add_rows(const RowMoveParams& p, int task);

}  // namespace mstar::ref
