#include "mstar/kernels/cpu/moe_kernels.h"

#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

template <typename T, typename Out>
void combine(const CombineParams& p, int64_t begin, int64_t end) {
  const auto* x = static_cast<const T*>(p.x.data);
  for (int64_t token = begin; token < end; ++token) {
    const int32_t* slots = p.slots + token * p.k;
    const float* weights = p.weights + token * p.k;
    auto* out = static_cast<Out*>(p.out.data) + token * p.out.stride;
    int64_t i = 0;
    for (; i + kLanes <= p.dim; i += kLanes) {
      Vec sum = zero();
      for (int64_t choice = 0; choice < p.k; ++choice) {
        sum = fma(set(weights[choice]), load(x + slots[choice] * p.x.stride + i), sum);
      }
      store(out + i, sum);
    }
    if (i < p.dim) {
      const int left = static_cast<int>(p.dim - i);
      Vec sum = zero();
      for (int64_t choice = 0; choice < p.k; ++choice) {
        sum = fma(set(weights[choice]), load_n(x + slots[choice] * p.x.stride + i, left), sum);
      }
      store_n(out + i, sum, left);
    }
  }
}

}  // namespace

void combine_task(const CombineParams& p, int task) {
  const int64_t begin = p.num_tokens * task / p.num_tasks;
  const int64_t end = p.num_tokens * (task + 1) / p.num_tasks;
  if (p.x.dtype == DType::kF32) {
    p.out.dtype == DType::kF32 ? combine<float, float>(p, begin, end)
                               : combine<float, bfloat16>(p, begin, end);
  } else {
    p.out.dtype == DType::kF32 ? combine<bfloat16, float>(p, begin, end)
                               : combine<bfloat16, bfloat16>(p, begin, end);
  }
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE
