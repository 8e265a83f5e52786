#include "mstar/kernels/cpu/matmul_int8-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

extern const FormatKernels format_q8_0_int8 = make_kernels<DType::kQ8_0>(AllRows{});
extern const FormatKernels format_q4_0_int8 = make_kernels<DType::kQ4_0>(AllRows{});
extern const FormatKernels format_q4_1_int8 = make_kernels<DType::kQ4_1>(AllRows{});

}  // namespace mstar::MSTAR_ISA_NAMESPACE
