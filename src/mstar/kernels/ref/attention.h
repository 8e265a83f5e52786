#pragma once

#include "mstar/kernels/cpu/attention.h"

namespace mstar::ref {

void attention(const AttentionParams& p, int task);
void write_paged_kv(const PagedWriteParams& p, int task);
void gather_paged_kv(const PagedGatherParams& p, int task);

}  // namespace mstar::ref
