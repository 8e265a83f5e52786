#include "mstar/kernels/cpu/matmul_int8-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

extern const FormatKernels format_q4_k_int8 = make_kernels<DType::kQ4_K>(AllRows{});
extern const FormatKernels format_q5_k_int8 = make_kernels<DType::kQ5_K>(AllRows{});
extern const FormatKernels format_q6_k_int8 = make_kernels<DType::kQ6_K>(AllRows{});

}  // namespace mstar::MSTAR_ISA_NAMESPACE
