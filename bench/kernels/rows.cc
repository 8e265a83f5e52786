// Norms, rope, activations: what stands between the matmuls, bound by memory; and what a replayed
// op costs when it is small.
#include <algorithm>
#include <memory>

#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/norm.h"
#include "mstar/kernels/ops/rope.h"

#include "bench/kernels/families.h"

namespace mstar::bench {

namespace {

constexpr int64_t kRows = 8192;  // 32 MiB and more of bf16 a tensor: beyond the caches
constexpr int64_t kDim = 2048;

double tensor_bytes(DType dtype, int count) {
  return static_cast<double>(count * kRows * kDim * element_bytes(dtype));
}

Case rms_norm_case(DType dtype) {
  Case result;
  result.name = str_cat("rms_norm/", to_string(dtype), "/", kRows, "x", kDim);
  result.bytes = tensor_bytes(dtype, 2);
  result.prepare = [=](CpuStream& stream) {
    const Tensor x = random_tensor({kRows, kDim}, dtype, 1);
    const Tensor weight = random_tensor({kDim}, dtype, 2);
    const auto out = std::make_shared<Tensor>(Tensor::empty(x.shape(), dtype));
    return Case::Runs{[=, &stream] { ops::rms_norm(stream, x, weight, {}, *out); }};
  };
  return result;
}

Case rope_case(DType dtype) {
  Case result;
  result.name = str_cat("apply_rope/", to_string(dtype), "/", kRows, "x16x128");
  result.bytes = tensor_bytes(dtype, 2) + static_cast<double>(kRows * 128 * 4);
  result.prepare = [=](CpuStream& stream) {
    RopeConfig config;
    config.head_dim = 128;
    const Tensor cos = random_tensor({kRows, 64}, DType::kF32, 1);
    const Tensor sin = random_tensor({kRows, 64}, DType::kF32, 2);
    const auto x = std::make_shared<Tensor>(random_tensor({kRows, 16, 128}, dtype, 3, 1e-3F));
    return Case::Runs{[=, &stream] { ops::apply_rope(stream, cos, sin, config, false, *x); }};
  };
  return result;
}

Case gated_case(DType dtype) {
  Case result;
  result.name = str_cat("gated_silu/", to_string(dtype), "/", kRows, "x", kDim);
  result.bytes = tensor_bytes(dtype, 3);
  result.prepare = [=](CpuStream& stream) {
    const Tensor gate_up = random_tensor({kRows, 2 * kDim}, dtype, 1);
    const auto out = std::make_shared<Tensor>(Tensor::empty({kRows, kDim}, dtype));
    return Case::Runs{
        [=, &stream] { ops::gated_activation(stream, gate_up, Activation::kSilu, *out); }};
  };
  return result;
}

// A chain of 200 additions of 64 numbers, replayed: its time over 200 is the overhead of an op.
Case chain_case() {
  Case result;
  result.name = "replay/chain of 200 small ops";
  result.flops = 200.0 * 64.0;
  result.prepare = [](CpuStream& stream) {
    const auto x = std::make_shared<Tensor>(random_tensor({64}, DType::kF32, 1, 1e-6F));
    const auto sum = std::make_shared<Tensor>(Tensor::zeros({64}, DType::kF32));
    stream.begin_capture();
    for (int op = 0; op < 200; ++op) {
      ops::add(stream, *sum, *x, *sum);
    }
    const std::shared_ptr<CapturedGraph> graph = stream.end_capture();
    return Case::Runs{[=] {
      graph->replay();
      static_cast<void>(x);  // the graph reads it
      static_cast<void>(sum);
    }};
  };
  return result;
}

}  // namespace

void add_row_cases(Cases& cases) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    cases.push_back(rms_norm_case(dtype));
    cases.push_back(rope_case(dtype));
    cases.push_back(gated_case(dtype));
  }
  cases.push_back(chain_case());
}

}  // namespace mstar::bench
