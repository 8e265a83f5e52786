#include "mstar/kernels/cpu/matmul_int8-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

extern const FormatKernels format_q5_0_int8 = make_kernels<DType::kQ5_0>(AllRows{});
extern const FormatKernels format_q5_1_int8 = make_kernels<DType::kQ5_1>(AllRows{});

}  // namespace mstar::MSTAR_ISA_NAMESPACE
