#pragma once

#include "mstar/kernels/cpu/rope.h"

namespace mstar::ref {

void rope_table(const RopeTableParams& p, int task);
void apply_rope(const RopeParams& p, int task);

}  // namespace mstar::ref
