#include "mstar/kernels/cpu/matmul_tile-inl.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

extern const FormatKernels format_f32 = make_format_kernels<DType::kF32>(4, AllRows{});
extern const FormatKernels format_bf16 = make_format_kernels<DType::kBF16>(4, AllRows{});
extern const FormatKernels format_f16 = make_format_kernels<DType::kF16>();

}  // namespace mstar::MSTAR_ISA_NAMESPACE
