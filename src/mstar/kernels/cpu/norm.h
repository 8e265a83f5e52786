#pragma once

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/cpu/rows.h"

namespace mstar {

// All norm kernels: task `task` of `num_tasks` does its share of the rows. Fields that a kernel
// does not name are ignored by it. Meanings: ops/norm.h.
struct NormParams {
  Rows x;
  Rows out;
  Rows residual;      // add_rms_norm
  Rows weight;        // one row; absent: ones (rms_norm, layer_norm; gamma of l2_norm_scaled)
  Rows bias;          // one row; absent: zeros (layer_norm)
  Rows scale, shift;  // ada_rms_norm, [rows / rows_per_cond, dim]
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t rows_per_cond = 1;
  float eps = 0.0F;
  bool gemma_mode = false;
  bool round_before_weight = false;
  bool silu = false;  // l2_norm_scaled
  int num_tasks = 1;
};

}  // namespace mstar

MSTAR_DECLARE_PER_ISA(void rms_norm(const NormParams& p, int task);
                      void add_rms_norm(const NormParams& p, int task);
                      void ada_rms_norm(const NormParams& p, int task);
                      void layer_norm(const NormParams& p, int task);
                      void l2_norm_scaled(const NormParams& p, int task);)
