// Rows of activations as packing reads them, and 32 values of one rounded to int8.
#pragma once

#include "mstar/kernels/cpu/matmul_kernels.h"
#include "mstar/kernels/cpu/matmul_vec-inl.h"
#include "mstar/kernels/cpu/round_block-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {
namespace {

inline float element(const PackRowsParams& p, int64_t row, int64_t k) {
  if (k >= p.k) {
    return 0.0F;
  }
  if (p.x_is_bf16) {
    const uint32_t bits = static_cast<const uint16_t*>(p.x)[row * p.x_stride + k];
    const uint32_t wide = bits << 16;
    float value;
    __builtin_memcpy(&value, &wide, sizeof(value));
    return value;
  }
  return static_cast<const float*>(p.x)[row * p.x_stride + k];
}

// kLanes values of a row, all inside it.
inline F row_values(const PackRowsParams& p, int64_t row, int64_t k) {
  const int64_t index = row * p.x_stride + k;
  return p.x_is_bf16 ? load_bf16(static_cast<const uint16_t*>(p.x) + index)
                     : load(static_cast<const float*>(p.x) + index);
}

// Values [k, k + 32) of a row to int8; those beyond its end are zeros.
template <bool kNibbles>
void round_row(const PackRowsParams& p, int64_t row, int64_t k, RoundedBlock& block) {
  F values[kParts];
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t at = k + part * kLanes;
    if (at + kLanes <= p.k) {
      values[part] = row_values(p, row, at);
    } else {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        values[part][lane] = element(p, row, at + lane);
      }
    }
  }
  round_block<kNibbles>(values, block);
}

}  // namespace
}  // namespace mstar::MSTAR_ISA_NAMESPACE
