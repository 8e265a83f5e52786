#include "mstar/kernels/ops/matmul.h"

#include <algorithm>
#include <memory>
#include <random>

#include "mstar/base/str_cat.h"

#include "bench/kernels/families.h"
#include "bench/onednn_peer.h"

namespace mstar::bench {

namespace {

struct Linear {
  std::vector<PackedWeight> weights;
  Tensor x;
  Tensor out;
  size_t turn = 0;
};

// Block-quantized bytes with random codes and small finite scales.
Tensor random_blocks(const Shape& shape, DType dtype) {
  std::mt19937 random(7);
  Tensor weight = Tensor::empty(shape, dtype);
  auto* bytes = reinterpret_cast<uint8_t*>(weight.bytes());
  for (int64_t index = 0; index + 4 <= weight.size_bytes(); index += 4) {
    const auto word = static_cast<uint32_t>(random());
    std::copy_n(reinterpret_cast<const uint8_t*>(&word), 4, bytes + index);
  }
  const DTypeInfo& layout = info(dtype);
  const bool at_end = dtype == DType::kQ6_K;
  for (int64_t block = 0; block < weight.size_bytes(); block += layout.block_bytes) {
    const int64_t scale = block + (at_end ? layout.block_bytes - 2 : 0);
    bytes[scale + 1] = 0x10;  // about 5e-4
    if (!at_end) {
      bytes[scale + 3] = 0x10;
    }
  }
  return weight;
}

Case linear_case(DType dtype,
                 int64_t m,
                 int64_t n,
                 int64_t k,
                 Activations activations = Activations::kExact,
                 WeightFormat format = WeightFormat::kKeep) {
  Case result;
  const bool int8_weight = format == WeightFormat::kInt8;
  const DTypeInfo& layout = info(int8_weight ? DType::kI8 : dtype);
  result.name = str_cat("linear/",
                        layout.name,
                        activations == Activations::kInt8 ? "-int8" : "",
                        "/m",
                        m,
                        "/n",
                        n,
                        "/k",
                        k);
  result.flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
  result.bytes = static_cast<double>(n * k / layout.block_size * layout.block_bytes);
  result.peak = activations == Activations::kInt8 ? Peak::kInt8
                : dtype == DType::kBF16           ? Peak::kBF16
                                                  : Peak::kF32;
  result.prepare = [=](CpuStream& stream) {
    auto state = std::make_shared<Linear>();
    const Tensor weight =
        is_quantized(dtype) ? random_blocks({n, k}, dtype) : random_tensor({n, k}, dtype, 1, 0.02F);
    // Copies that take turns, so that every pass comes from memory.
    const auto copies =
        static_cast<int>(std::clamp<int64_t>((int64_t{192} << 20) / weight.size_bytes(), 1, 16));
    for (int copy = 0; copy < copies; ++copy) {
      state->weights.push_back(PackedWeight::pack(weight, stream.pool(), format, activations));
    }
    const DType x_dtype = dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
    state->x = random_tensor({m, k}, x_dtype, 2);
    state->out = Tensor::empty({m, n}, x_dtype);
    Case::Runs runs;
    runs.ours = [state, &stream] {
      const PackedWeight& packed = state->weights[state->turn++ % state->weights.size()];
      ops::linear(stream, state->x, packed, {}, state->out);
    };
    runs.peer = onednn_matmul(m,
                              n,
                              k,
                              dtype == DType::kBF16 ? DType::kBF16 : DType::kF32,
                              std::clamp(copies, 1, 4),
                              stream.num_threads());
    return runs;
  };
  return result;
}

}  // namespace

void add_matmul_cases(Cases& cases) {
  for (const int64_t m : {1, 2, 4, 8, 16, 64, 256, 1024}) {
    cases.push_back(linear_case(DType::kBF16, m, 4096, 4096));
  }
  for (const int64_t m : {1, 16, 64, 256}) {
    cases.push_back(linear_case(DType::kF32, m, 4096, 4096));
  }
  for (const DType dtype : {DType::kQ8_0,
                            DType::kQ4_0,
                            DType::kQ4_1,
                            DType::kQ5_0,
                            DType::kQ5_1,
                            DType::kQ4_K,
                            DType::kQ5_K,
                            DType::kQ6_K}) {
    cases.push_back(linear_case(dtype, 1, 4096, 4096));
  }
  for (const DType dtype :
       {DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    cases.push_back(linear_case(dtype, 1, 4096, 4096, Activations::kInt8));
  }
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    for (const int64_t m : {2, 8, 64, 512}) {
      cases.push_back(linear_case(dtype, m, 4096, 4096));
    }
    for (const int64_t m : {1, 2, 8, 64, 512}) {
      cases.push_back(linear_case(dtype, m, 4096, 4096, Activations::kInt8));
    }
  }
  for (const int64_t m : {1, 16, 64, 1024}) {  // int8 weights, bf16 activations
    cases.push_back(
        linear_case(DType::kBF16, m, 4096, 4096, Activations::kExact, WeightFormat::kInt8));
  }
  cases.push_back(linear_case(DType::kBF16, 1560, 1536, 1536));  // a video transformer's
  cases.push_back(linear_case(DType::kBF16, 1560, 8960, 1536));
  cases.push_back(linear_case(DType::kBF16, 1, 151936, 1024));  // a language model's head
}

}  // namespace mstar::bench
