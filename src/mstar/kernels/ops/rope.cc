#include "mstar/kernels/ops/rope.h"

#include <cmath>
#include <numbers>

#include "mstar/kernels/cpu/rope.h"
#include "mstar/kernels/ops/choose.h"
#include "mstar/kernels/ref/rope.h"

namespace mstar {

namespace {

int64_t rotary_dim_of(const RopeConfig& config) {
  return config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
}

// Meta's schedule for long contexts: wave lengths past the old context are stretched by `scale`,
// short ones stay, those between are blended. Every step is rounded to f32, as torch does it.
float llama31_scaled(float inv_freq, const RopeConfig& config) {
  const auto old_context = static_cast<float>(config.old_context_len);
  const float low_wavelen = old_context / config.low_freq_factor;
  const float high_wavelen = old_context / config.high_freq_factor;
  const float wavelen = static_cast<float>(2.0 * std::numbers::pi) / inv_freq;
  if (wavelen > low_wavelen) {
    return inv_freq / config.scale;
  }
  if (wavelen < high_wavelen) {
    return inv_freq;
  }
  const float smooth = (old_context / wavelen - config.low_freq_factor) /
                       (config.high_freq_factor - config.low_freq_factor);
  return (1.0F - smooth) * inv_freq / config.scale + smooth * inv_freq;
}

// 0 time, 1 height, 2 width.
uint8_t axis_of(const RopeConfig& config, int64_t index) {
  switch (config.layout) {
    case RopeConfig::Layout::kOneAxis: return 0;
    case RopeConfig::Layout::kSectioned:
      if (index < config.section[0]) {
        return 0;
      }
      return index < config.section[0] + config.section[1] ? 1 : 2;
    case RopeConfig::Layout::kInterleaved:
      if (index % 3 == 1 && index < 3 * config.section[1]) {
        return 1;
      }
      return index % 3 == 2 && index < 3 * config.section[2] ? 2 : 0;
  }
  return 0;
}

}  // namespace

Tensor rope_inv_freq(const RopeConfig& config) {
  const int64_t rotary_dim = rotary_dim_of(config);
  MSTAR_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0, "rotary_dim=", rotary_dim);
  Tensor out = Tensor::empty({rotary_dim / 2}, DType::kF32);
  for (int64_t index = 0; index < rotary_dim / 2; ++index) {
    const float exponent = static_cast<float>(2 * index) / static_cast<float>(rotary_dim);
    const auto power = static_cast<float>(
        std::pow(static_cast<double>(config.theta), static_cast<double>(exponent)));
    float inv_freq = 1.0F / power;
    if (config.scaling == RopeConfig::Scaling::kLinear) {
      inv_freq /= config.scale;
    } else if (config.scaling == RopeConfig::Scaling::kLlama31) {
      inv_freq = llama31_scaled(inv_freq, config);
    }
    out.data<float>()[index] = inv_freq;
  }
  return out;
}

namespace ops {

void rope_table(Stream& stream,
                const Tensor& positions,
                const Tensor& inv_freq,
                const RopeConfig& config,
                Tensor& cos,
                Tensor& sin) {
  CpuStream& cpu = as_cpu(stream);
  const int64_t half = inv_freq.dim(0);
  const bool three_axes = config.layout != RopeConfig::Layout::kOneAxis;
  MSTAR_CHECK(half <= kMaxRopeFrequencies && 2 * half == rotary_dim_of(config),
              inv_freq.to_string(),
              " for rotary_dim ",
              rotary_dim_of(config));
  MSTAR_CHECK(positions.num_dims() == 1 || (positions.num_dims() == 2 && positions.dim(0) == 3),
              "positions ",
              positions.to_string());
  const DType dtype = positions.dtype();
  MSTAR_CHECK(dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kF32,
              "positions ",
              positions.to_string());
  RopeTableParams p;
  p.tokens = positions.dim(-1);
  const Shape shape{p.tokens, half};
  MSTAR_CHECK(
      cos.shape() == shape && sin.shape() == shape && cos.is_contiguous() && sin.is_contiguous(),
      "cos ",
      cos.to_string(),
      ", sin ",
      sin.to_string());
  p.positions = positions.bytes();
  p.positions_dtype = dtype;
  p.axis_stride = positions.num_dims() == 2 ? positions.stride(0) : 0;  // one row serves all axes
  p.token_stride = positions.stride(-1);
  p.inv_freq = inv_freq.data<float>();
  p.cos = cos.data<float>();
  p.sin = sin.data<float>();
  p.half = half;
  for (int64_t index = 0; index < half; ++index) {
    p.axis[index] = three_axes ? axis_of(config, index) : 0;
  }
  if (p.tokens > 0) {
    p.num_tasks = row_tasks(cpu, p.tokens, 16 * half);  // sines cost more than moves
    cpu.enqueue("rope_table", p.num_tasks, p, MSTAR_KERNEL(rope_table));
  }
}

void apply_rope(Stream& stream,
                const Tensor& cos,
                const Tensor& sin,
                const RopeConfig& config,
                bool round_table,
                Tensor& x) {
  CpuStream& cpu = as_cpu(stream);
  MSTAR_CHECK(x.num_dims() == 3 && x.dim(2) == config.head_dim && x.stride(2) == 1,
              "x ",
              x.to_string(),
              " for head_dim ",
              config.head_dim);
  const int64_t half = rotary_dim_of(config) / 2;
  const Shape shape{x.dim(0), half};
  MSTAR_CHECK(2 * half <= config.head_dim && cos.shape() == shape && sin.shape() == shape &&
                  cos.is_contiguous() && sin.is_contiguous(),
              "cos ",
              cos.to_string(),
              ", sin ",
              sin.to_string(),
              " for x ",
              x.to_string());
  MSTAR_CHECK(x.dtype() == DType::kF32 || x.dtype() == DType::kBF16, x.to_string());
  RopeParams p;
  p.cos = cos.data<float>();
  p.sin = sin.data<float>();
  p.x = x.bytes();
  p.dtype = x.dtype();
  p.token_stride = x.stride(0);
  p.head_stride = x.stride(1);
  p.tokens = x.dim(0);
  p.num_heads = x.dim(1);
  p.half = half;
  p.interleave = config.interleave;
  p.round_table = round_table && x.dtype() == DType::kBF16;
  if (p.tokens > 0 && p.num_heads > 0) {
    p.num_tasks = row_tasks(cpu, p.tokens, p.num_heads * config.head_dim);
    cpu.enqueue("apply_rope", p.num_tasks, p, MSTAR_KERNEL(apply_rope));
  }
}

}  // namespace ops
}  // namespace mstar
