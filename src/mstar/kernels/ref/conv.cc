#include "mstar/kernels/ref/conv.h"

#include <cmath>

#include "mstar/kernels/ref/elements.h"

namespace mstar::ref {

namespace {

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kSilu: return x / (1.0 + std::exp(-x));
    case Activation::kGelu: return 0.5 * x * (1.0 + std::erf(x * M_SQRT1_2));
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu: return x > 0.0 ? x : 0.0;
    case Activation::kRelu2: return x > 0.0 ? x * x : 0.0;
  }
  return x;
}

// The frames of history and x in one f32 tensor.
Tensor joined(const Tensor& history, const Tensor& x) {
  const int64_t num_history = history.defined() ? history.dim(0) : 0;
  Tensor all = Tensor::empty({num_history + x.dim(0), x.dim(1), x.dim(2), x.dim(3)}, DType::kF32);
  std::vector<float> values = num_history > 0 ? history.to_floats() : std::vector<float>{};
  const std::vector<float> tail = x.to_floats();
  values.insert(values.end(), tail.begin(), tail.end());
  std::copy(values.begin(), values.end(), all.data<float>());
  return all;
}

// One output element before bias: the taps of output position (t, h, w) on channel `channel`.
double tap_sum(const Tensor& x,
               const Tensor& weight,
               const ConvOptions& options,
               const std::array<int64_t, 3>& position,
               int64_t channel) {
  double sum = 0.0;
  for (int64_t kt = 0; kt < weight.dim(2); ++kt) {
    for (int64_t kh = 0; kh < weight.dim(3); ++kh) {
      for (int64_t kw = 0; kw < weight.dim(4); ++kw) {
        const std::array<int64_t, 3> tap{kt, kh, kw};
        std::array<int64_t, 3> from;
        bool inside = true;
        for (size_t axis = 0; axis < 3; ++axis) {
          from[axis] = position[axis] * options.stride[axis] + tap[axis] * options.dilation[axis] -
                       options.pad_before[axis];
          inside = inside && from[axis] >= 0 && from[axis] < x.dim(static_cast<int>(axis));
        }
        if (!inside) {
          continue;
        }
        const float* pixel =
            x.data<float>() + ((from[0] * x.dim(1) + from[1]) * x.dim(2) + from[2]) * x.dim(3);
        for (int64_t in = 0; in < x.dim(3); ++in) {
          const int64_t offset = channel * weight.stride(0) + in * weight.stride(1) +
                                 kt * weight.stride(2) + kh * weight.stride(3) + kw;
          sum += static_cast<double>(pixel[in]) * static_cast<double>(weight.data<float>()[offset]);
        }
      }
    }
  }
  return sum;
}

}  // namespace

void conv3d(const Tensor& x,
            const Tensor& history,
            const Tensor& weight,
            const Tensor& bias,
            const ConvOptions& options,
            Tensor& out) {
  const Tensor all = joined(history, x);
  const Tensor filter = weight.to(DType::kF32);
  const std::vector<float> biases =
      bias.defined() ? bias.to_floats() : std::vector<float>(static_cast<size_t>(out.dim(3)), 0.0F);
  const std::vector<float> residual =
      options.residual.defined() ? options.residual.to_floats() : std::vector<float>{};
  std::vector<double> values;
  for (int64_t t = 0; t < out.dim(0); ++t) {
    for (int64_t h = 0; h < out.dim(1); ++h) {
      for (int64_t w = 0; w < out.dim(2); ++w) {
        for (int64_t channel = 0; channel < out.dim(3); ++channel) {
          double value = tap_sum(all, filter, options, {t, h, w}, channel);
          value = activated(value + biases[static_cast<size_t>(channel)], options.activation);
          value += residual.empty() ? 0.0 : residual[values.size()];
          values.push_back(value);
        }
      }
    }
  }
  assign(out, values);
}

void conv2d(const Tensor& x,
            const Tensor& weight,
            const Tensor& bias,
            const ConvOptions& options,
            Tensor& out) {
  conv3d(x, {}, weight.unsqueeze(2), bias, options, out);
}

void conv1d(const Tensor& x,
            const Tensor& weight,
            const Tensor& bias,
            const ConvOptions& options,
            Tensor& out) {
  ConvOptions wide = options;
  if (wide.residual.defined()) {
    wide.residual = wide.residual.unsqueeze(1);
  }
  Tensor out4 = out.unsqueeze(1);
  conv3d(x.unsqueeze(1), {}, weight.unsqueeze(2).unsqueeze(2), bias, wide, out4);
}

void conv_transpose1d(const Tensor& x,
                      const Tensor& weight,
                      const Tensor& bias,
                      int32_t stride,
                      int32_t pad,
                      Tensor& out) {
  const std::vector<float> samples = x.to_floats();
  const std::vector<float> filter = weight.to_floats();
  const int64_t length = out.dim(1);
  const int64_t channels = out.dim(2);
  const int64_t taps = weight.dim(2);
  std::vector<double> values(static_cast<size_t>(out.num_elements()), 0.0);
  if (bias.defined()) {
    const std::vector<float> biases = bias.to_floats();
    for (size_t index = 0; index < values.size(); ++index) {
      values[index] = biases[index % static_cast<size_t>(channels)];
    }
  }
  for (int64_t n = 0; n < x.dim(0); ++n) {
    for (int64_t l = 0; l < x.dim(1); ++l) {
      for (int64_t in = 0; in < x.dim(2); ++in) {
        const float sample = samples[static_cast<size_t>((n * x.dim(1) + l) * x.dim(2) + in)];
        for (int64_t channel = 0; channel < channels; ++channel) {
          for (int64_t tap = 0; tap < taps; ++tap) {
            const int64_t to = l * stride - pad + tap;
            if (to >= 0 && to < length) {
              values[static_cast<size_t>((n * length + to) * channels + channel)] +=
                  static_cast<double>(sample) *
                  static_cast<double>(
                      filter[static_cast<size_t>((in * channels + channel) * taps + tap)]);
            }
          }
        }
      }
    }
  }
  assign(out, values);
}

}  // namespace mstar::ref
