#include "mstar/models/cosmos3/vae_blocks.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/components/linear.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/attention.h"
#include "mstar/kernels/ops/norm.h"
#include "mstar/models/cosmos3/vae_ops.h"

namespace mstar::cosmos3 {

namespace {

Shape weight_shape(int64_t in, int64_t out, const std::array<int64_t, 3>& kernel, int axes) {
  Shape shape{out, in};
  for (size_t axis = static_cast<size_t>(3 - axes); axis < 3; ++axis) {
    shape.push_back(kernel[axis]);
  }
  return shape;
}

// Convolutions over pictures pad one pixel on every side.
ConvOptions same_size() {
  ConvOptions options;
  options.pad_before = {0, 1, 1};
  options.pad_after = {0, 1, 1};
  return options;
}

Tensor in_format(const Tensor& weight, WeightFormat format) {
  return format == WeightFormat::kBF16 && weight.dtype() != DType::kBF16 ? weight.to(DType::kBF16)
                                                                         : weight;
}

}  // namespace

VaeFilter::VaeFilter(const Shape& weight, int64_t num_biases)
    : weight_parameter_(&add_parameter("weight", weight, ParameterKind::kFloating)),
      bias_parameter_(&add_parameter("bias", {num_biases}, ParameterKind::kFloating)) {}

void VaeFilter::pack(const FinalizeOptions& options) {
  pack_filter(weight_parameter_->join(), bias_parameter_->join(), options);
  weight_parameter_->release();
  bias_parameter_->release();
}

VaeConv::VaeConv(int64_t in, int64_t out, std::array<int64_t, 3> kernel, int axes)
    : VaeFilter(weight_shape(in, out, kernel, axes), out),
      out_(out),
      kernel_(kernel),
      axes_(axes) {}

void VaeConv::pack_filter(const Tensor& weight,
                          const Tensor& bias,
                          const FinalizeOptions& options) {
  conv_ = PackedConv::pack(in_format(weight, options.weight_format), bias, options.pool);
}

Tensor VaeConv::forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& history,
                        const ConvOptions& options) const {
  Shape shape = x.shape();
  for (int axis = 0; axis < 3; ++axis) {
    const auto at = static_cast<size_t>(axis);
    const int64_t before = axis == 0 && history.defined() ? history.dim(0) : 0;
    const int64_t reach =
        before + x.dim(axis) + options.pad_before[at] + options.pad_after[at] - kernel_[at];
    MSTAR_CHECK(reach >= 0, x.to_string(), " is smaller than the kernel");
    shape[axis] = reach / options.stride[at] + 1;
  }
  shape[3] = out_;
  Tensor out = stream.empty(shape, x.dtype());
  if (axes_ == 3) {
    ops::conv3d(stream, x, history, conv_, options, out);
  } else {
    ops::conv2d(stream, x, conv_, options, out);
  }
  return out;
}

UpsampleConv::UpsampleConv(int64_t channels)
    : VaeFilter({channels, channels, 3, 3}, channels), channels_(channels) {}

void UpsampleConv::pack_filter(const Tensor& weight,
                               const Tensor& bias,
                               const FinalizeOptions& options) {
  const Tensor taps = weight.to(DType::kF32);
  const float* from = taps.data<float>();
  for (int64_t phase = 0; phase < 4; ++phase) {
    Tensor sums = Tensor::zeros({channels_, channels_, 2, 2}, DType::kF32);
    // Row r of the taps of an even output row lies on row (r + 1) / 2 of the two rows of x that it
    // sees, one of an odd one on r / 2; columns likewise.
    const auto place = [](int64_t tap, int64_t odd) { return odd != 0 ? tap / 2 : (tap + 1) / 2; };
    options.pool.parallel_for(static_cast<int>(channels_), [&](int out) {
      for (int64_t pair = out * channels_; pair < (out + 1) * channels_; ++pair) {
        for (int64_t tap = 0; tap < 9; ++tap) {
          const int64_t to = place(tap / 3, phase / 2) * 2 + place(tap % 3, phase % 2);
          sums.data<float>()[pair * 4 + to] += from[pair * 9 + tap];
        }
      }
    });
    phases_[static_cast<size_t>(phase)] =
        PackedConv::pack(in_format(sums, options.weight_format), bias, options.pool);
  }
}

Tensor UpsampleConv::forward(Stream& stream, const Tensor& x) const {
  const int64_t frames = x.dim(0);
  const int64_t height = x.dim(1);
  const int64_t width = x.dim(2);
  Tensor out = stream.empty({frames, height, 2, width, 2 * channels_}, x.dtype());
  for (int64_t phase = 0; phase < 4; ++phase) {
    const auto odd_row = static_cast<int32_t>(phase / 2);
    const auto odd_column = static_cast<int32_t>(phase % 2);
    ConvOptions options;
    options.pad_before = {0, 1 - odd_row, 1 - odd_column};
    options.pad_after = {0, odd_row, odd_column};
    // Pixels of that kind: every second row, every second column.
    Tensor to =
        out.select(2, odd_row).slice(3, odd_column * channels_, (odd_column + 1) * channels_);
    ops::conv2d(stream, x, phases_[static_cast<size_t>(phase)], options, to);
  }
  return out.view({frames, 2 * height, 2 * width, channels_});
}

FrameDoublingConv::FrameDoublingConv(int64_t channels)
    : VaeFilter({2 * channels, channels, 3, 1, 1}, 2 * channels), channels_(channels) {}

void FrameDoublingConv::pack_filter(const Tensor& weight,
                                    const Tensor& bias,
                                    const FinalizeOptions& options) {
  const Tensor all = in_format(weight, options.weight_format);
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t begin = half * channels_;
    halves_[static_cast<size_t>(half)] = PackedConv::pack(all.slice(0, begin, begin + channels_),
                                                          bias.slice(0, begin, begin + channels_),
                                                          options.pool);
  }
}

Tensor FrameDoublingConv::forward(Stream& stream,
                                  const Tensor& x,
                                  const Tensor& history,
                                  const ConvOptions& options) const {
  const int64_t before = history.defined() ? history.dim(0) : 0;
  const int64_t frames = before + x.dim(0) + options.pad_before[0] + options.pad_after[0] - 2;
  Tensor out = stream.empty({frames, 2, x.dim(1), x.dim(2), channels_}, x.dtype());
  for (int64_t half = 0; half < 2; ++half) {
    Tensor to = out.select(1, half);
    ops::conv3d(stream, x, history, halves_[static_cast<size_t>(half)], options, to);
  }
  return out.view({2 * frames, x.dim(1), x.dim(2), channels_});
}

Tensor last_frames(Stream& stream,
                   const Tensor& history,
                   const Tensor& x,
                   int64_t count,
                   bool may_share) {
  if (may_share && x.dim(0) == count) {
    return x;
  }
  Shape shape = x.shape();
  shape[0] = count;
  Tensor out = stream.empty(shape, x.dtype());
  const int64_t from_x = std::min(count, x.dim(0));
  const int64_t from_history = history.defined() ? std::min(count - from_x, history.dim(0)) : 0;
  const int64_t zeros = count - from_x - from_history;
  if (zeros > 0) {
    Tensor part = out.slice(0, 0, zeros);
    ops::fill(stream, 0.0F, part);
  }
  if (from_history > 0) {
    Tensor part = out.slice(0, zeros, zeros + from_history);
    ops::copy(stream, history.slice(0, history.dim(0) - from_history, history.dim(0)), part);
  }
  Tensor part = out.slice(0, count - from_x, count);
  ops::copy(stream, x.slice(0, x.dim(0) - from_x, x.dim(0)), part);
  return out;
}

Tensor CausalConv::run(Stream& stream,
                       const Tensor& x,
                       VaeCache& cache,
                       const Tensor& residual) const {
  Tensor& history = cache.history(cache_index_);
  ConvOptions options = same_size();
  options.residual = residual;
  if (!history.defined()) {
    options.pad_before[0] = 2;
  }
  Tensor out = forward(stream, x, history, options);
  history = last_frames(stream, history, x, 2, true);
  return out;
}

ChannelNorm::ChannelNorm(int64_t channels, int gamma_dims) {
  Shape shape{channels};
  for (int dim = 0; dim < gamma_dims; ++dim) {
    shape.push_back(1);
  }
  parameter_ = &add_parameter("gamma", shape, ParameterKind::kFloating);
}

void ChannelNorm::pack(const FinalizeOptions&) {
  const Tensor loaded = parameter_->join();
  gamma_ = loaded.copy().view({loaded.dim(0)}).to(DType::kF32);
  parameter_->release();
}

Tensor ChannelNorm::forward(Stream& stream, const Tensor& x, bool silu) const {
  Tensor out = stream.empty(x.shape(), x.dtype());
  ops::l2_norm_scaled(stream, x, gamma_, silu, out);
  return out;
}

ResidualBlock::ResidualBlock(int64_t in, int64_t out, const std::string& name, CacheLayout& layout)
    : norm1_(in, 3),
      conv1_(in, out, layout.add(name + ".conv1")),
      norm2_(out, 3),
      conv2_(out, out, layout.add(name + ".conv2")) {
  add_module("norm1", norm1_);
  add_module("conv1", conv1_);
  add_module("norm2", norm2_);
  add_module("conv2", conv2_);
  if (in != out) {
    shortcut_ = std::make_unique<VaeConv>(in, out, std::array<int64_t, 3>{1, 1, 1}, 3);
    add_module("conv_shortcut", *shortcut_);
  }
}

Tensor ResidualBlock::forward(Stream& stream, const Tensor& x, VaeCache& cache) const {
  const Tensor shortcut =
      shortcut_ == nullptr ? x : shortcut_->forward(stream, x, {}, ConvOptions{});
  const Tensor hidden = conv1_.run(stream, norm1_.forward(stream, x, true), cache);
  return conv2_.run(stream, norm2_.forward(stream, hidden, true), cache, shortcut);
}

VaeAttention::VaeAttention(int64_t channels) : channels_(channels), norm_(channels, 2) {
  add_module("norm", norm_);
  const auto kind = ParameterKind::kFloating;
  qkv_weight_parameter_ = &add_parameter("to_qkv.weight", {3 * channels, channels, 1, 1}, kind);
  qkv_bias_parameter_ = &add_parameter("to_qkv.bias", {3 * channels}, kind);
  proj_weight_parameter_ = &add_parameter("proj.weight", {channels, channels, 1, 1}, kind);
  proj_bias_parameter_ = &add_parameter("proj.bias", {channels}, kind);
}

void VaeAttention::pack(const FinalizeOptions& options) {
  // A convolution of one pixel is a matrix product.
  const auto matrix = [&](Parameter& parameter) {
    const Tensor loaded = parameter.join().copy();
    parameter.release();
    return PackedWeight::pack(
        loaded.view({loaded.dim(0), loaded.dim(1)}), options.pool, options.weight_format);
  };
  qkv_ = matrix(*qkv_weight_parameter_);
  proj_ = matrix(*proj_weight_parameter_);
  qkv_bias_ = take_vector(*qkv_bias_parameter_);
  proj_bias_ = take_vector(*proj_bias_parameter_);
}

Tensor VaeAttention::forward(Stream& stream, const Tensor& x) const {
  const int64_t pixels = x.dim(1) * x.dim(2);
  const int64_t rows = x.dim(0) * pixels;
  Epilogue with_bias;
  with_bias.bias = qkv_bias_;
  const Tensor normed = norm_.forward(stream, x, false).view({rows, channels_});
  const Tensor qkv = linear_rows(stream, normed, qkv_, with_bias, x.dtype());
  const auto part = [&](int64_t index) {
    return qkv.slice(1, index * channels_, (index + 1) * channels_).unsqueeze(1);
  };
  Tensor attended = stream.empty({rows, 1, channels_}, x.dtype());
  std::vector<int32_t> ends;
  for (int64_t frame = 0; frame <= x.dim(0); ++frame) {
    ends.push_back(static_cast<int32_t>(frame * pixels));
  }
  const Tensor indptr = Tensor::from(ends, {x.dim(0) + 1});
  AttentionOptions options;
  options.causal = false;
  ops::ragged_attention(stream, part(0), part(1), part(2), indptr, indptr, options, attended);
  Epilogue epilogue;
  epilogue.bias = proj_bias_;
  epilogue.residual = x.view({rows, channels_});
  const Tensor out =
      linear_rows(stream, attended.view({rows, channels_}), proj_, epilogue, x.dtype());
  stream.synchronize();  // indptr must live until the op ran
  return out.view(x.shape());
}

MidBlock::MidBlock(int64_t channels, const std::string& name, CacheLayout& layout)
    : first_(channels, channels, name + ".resnets.0", layout),
      attention_(channels),
      second_(channels, channels, name + ".resnets.1", layout) {
  add_module("resnets.0", first_);
  add_module("attentions.0", attention_);
  add_module("resnets.1", second_);
}

Tensor MidBlock::forward(Stream& stream, const Tensor& x, VaeCache& cache) const {
  const Tensor hidden = attention_.forward(stream, first_.forward(stream, x, cache));
  return second_.forward(stream, hidden, cache);
}

Downsampler::Downsampler(int64_t channels,
                         bool temporal,
                         const std::string& name,
                         CacheLayout& layout)
    : resample_(channels, channels, {1, 3, 3}, 2) {
  add_module("resample.1", resample_);
  if (temporal) {
    time_conv_ = std::make_unique<VaeConv>(channels, channels, std::array<int64_t, 3>{3, 1, 1}, 3);
    add_module("time_conv", *time_conv_);
    cache_index_ = layout.add(name + ".time_conv");
  }
}

Tensor Downsampler::forward(Stream& stream, const Tensor& x, VaeCache& cache) const {
  ConvOptions options;
  options.stride = {1, 2, 2};
  options.pad_after = {0, 1, 1};
  const Tensor small = resample_.forward(stream, x, {}, options);
  if (time_conv_ == nullptr) {
    return small;
  }
  Tensor& history = cache.history(cache_index_);
  Tensor out = small;
  if (!cache.is_first_chunk()) {
    ConvOptions strided;
    strided.stride = {2, 1, 1};
    out = time_conv_->forward(stream, small, history, strided);
  }
  history = last_frames(stream, history, small, 1, false);  // `out` may be it, and is added to
  return out;
}

Upsampler::Upsampler(int64_t channels, bool temporal, const std::string& name, CacheLayout& layout)
    : resample_(channels) {
  add_module("resample.1", resample_);
  if (temporal) {
    time_conv_ = std::make_unique<FrameDoublingConv>(channels);
    add_module("time_conv", *time_conv_);
    cache_index_ = layout.add(name + ".time_conv");
  }
}

Tensor Upsampler::forward(Stream& stream, const Tensor& x, VaeCache& cache) const {
  Tensor frames = x;
  // The first chunk's only frame stays one, and the second chunk does not see it.
  if (time_conv_ != nullptr && !cache.is_first_chunk()) {
    Tensor& history = cache.history(cache_index_);
    ConvOptions causal;
    if (!history.defined()) {
      causal.pad_before = {2, 0, 0};
    }
    frames = time_conv_->forward(stream, x, history, causal);
    history = last_frames(stream, history, x, 2, true);
  }
  return resample_.forward(stream, frames);
}

}  // namespace mstar::cosmos3
