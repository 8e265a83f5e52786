#include "mstar/kernels/cpu/matmul_tile-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

extern const FormatKernels format_q4_k = make_format_kernels<DType::kQ4_K>();
extern const FormatKernels format_q5_k = make_format_kernels<DType::kQ5_K>();
extern const FormatKernels format_q6_k = make_format_kernels<DType::kQ6_K>();

}  // namespace mstar::MSTAR_ISA_NAMESPACE
