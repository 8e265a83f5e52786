#pragma once

#include "mstar/kernels/cpu/embedding.h"

namespace mstar::ref {

void embedding(const RowMoveParams& p, int task);
void gather_rows(const RowMoveParams& p, int task);
void scatter_rows(const RowMoveParams& p, int task);
void scatter_add_rows(const RowMoveParams& p, int task);

}  // namespace mstar::ref
