#include "mstar/kernels/cpu/matmul_tile-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

extern const FormatKernels format_i8 = make_format_kernels<DType::kI8>();
extern const FormatKernels format_q8_0 = make_format_kernels<DType::kQ8_0>();
extern const FormatKernels format_q4_0 = make_format_kernels<DType::kQ4_0>();
extern const FormatKernels format_q4_1 = make_format_kernels<DType::kQ4_1>();
extern const FormatKernels format_q5_0 = make_format_kernels<DType::kQ5_0>();
extern const FormatKernels format_q5_1 = make_format_kernels<DType::kQ5_1>();

}  // namespace mstar::MSTAR_ISA_NAMESPACE
