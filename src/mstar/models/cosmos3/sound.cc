#include "mstar/models/cosmos3/sound.h"

#include <algorithm>
#include <cmath>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/load.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/cosmos3/elementwise.h"

namespace mstar::cosmos3 {

SoundConv::SoundConv(const Shape1d& shape) : shape_(shape) {
  const int64_t rows = shape.transposed ? shape.in : shape.out;
  const int64_t columns = shape.transposed ? shape.out : shape.in;
  const auto kind = ParameterKind::kFloating;
  length_parameter_ = &add_parameter("weight_g", {rows, 1, 1}, kind);
  direction_parameter_ = &add_parameter("weight_v", {rows, columns, shape.kernel}, kind);
  if (shape.bias) {
    bias_parameter_ = &add_parameter("bias", {shape.out}, kind);
  }
}

Tensor fold_weight_norm(const Tensor& length, const Tensor& direction) {
  const Tensor lengths = length.to(DType::kF32);
  Tensor out = direction.to(DType::kF32).copy();
  const int64_t rows = out.dim(0);
  const int64_t size = rows == 0 ? 0 : out.num_elements() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    float* values = out.data<float>() + row * size;
    double squares = 0.0;
    for (int64_t i = 0; i < size; ++i) {
      squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    const auto norm = static_cast<float>(std::sqrt(squares));
    for (int64_t i = 0; i < size; ++i) {
      values[i] = lengths.data<float>()[row] * values[i] / norm;
    }
  }
  return out;
}

void SoundConv::pack(const FinalizeOptions& options) {
  Tensor weight =
      fold_weight_norm(length_parameter_->join().copy(), direction_parameter_->join().copy());
  if (options.weight_format == WeightFormat::kBF16) {
    weight = weight.to(DType::kBF16);
  }
  const Tensor bias = bias_parameter_ == nullptr ? Tensor() : bias_parameter_->join().copy();
  conv_ = shape_.transposed ? PackedConv::pack_transposed(weight, bias, options.pool)
                            : PackedConv::pack(weight, bias, options.pool);
  length_parameter_->release();
  direction_parameter_->release();
  if (bias_parameter_ != nullptr) {
    bias_parameter_->release();
  }
}

Tensor SoundConv::forward(Stream& stream, const Tensor& x, const Tensor& residual) const {
  if (shape_.transposed) {
    const auto stride = static_cast<int32_t>(shape_.stride);
    Tensor out = stream.empty({x.dim(0), x.dim(1) * shape_.stride, shape_.out}, x.dtype());
    ops::conv_transpose1d(stream, x, conv_, stride, (stride + 1) / 2, stride % 2, out);
    return out;
  }
  const auto pad = static_cast<int32_t>(shape_.dilation * (shape_.kernel - 1) / 2);
  ConvOptions options;
  options.dilation[2] = static_cast<int32_t>(shape_.dilation);
  options.pad_before[2] = pad;
  options.pad_after[2] = pad;
  options.residual = residual;
  Tensor out = stream.empty({x.dim(0), x.dim(1), shape_.out}, x.dtype());
  ops::conv1d(stream, x, conv_, options, out);
  return out;
}

Snake::Snake(int64_t channels) {
  alpha_parameter_ = &add_parameter("alpha", {1, channels, 1}, ParameterKind::kFloating);
  beta_parameter_ = &add_parameter("beta", {1, channels, 1}, ParameterKind::kFloating);
}

void Snake::pack(const FinalizeOptions&) {
  std::vector<float> frequency = alpha_parameter_->join().to_floats();
  std::vector<float> amplitude = beta_parameter_->join().to_floats();
  for (float& value : frequency) {
    value = std::exp(value);
  }
  for (float& value : amplitude) {
    value = 1.0F / (std::exp(value) + 1e-9F);
  }
  const auto channels = static_cast<int64_t>(frequency.size());
  frequency_ = Tensor::from(frequency, {channels});
  inverse_amplitude_ = Tensor::from(amplitude, {channels});
  alpha_parameter_->release();
  beta_parameter_->release();
}

Tensor Snake::forward(Stream& stream, const Tensor& x) const {
  Tensor out = stream.empty(x.shape(), x.dtype());
  snake(stream, x, frequency_, inverse_amplitude_, out);
  return out;
}

SoundDecoder::SoundDecoder(const SoundConfig& config, DType activation_dtype)
    : config_(config), activation_dtype_(activation_dtype) {
  // Widths from the widest to dec_dim, one step a block; the last block keeps its width.
  std::vector<int64_t> widths{config.dec_dim};
  for (const int64_t mult : config.dec_c_mults) {
    widths.push_back(config.dec_dim * mult);
  }
  conv1_ = std::make_unique<SoundConv>(
      SoundConv::Shape1d{.in = config.vocoder_input_dim, .out = widths.back(), .kernel = 7});
  add_module("decoder.conv1", *conv1_);
  const auto num_blocks = static_cast<int64_t>(config.dec_strides.size());
  for (int64_t index = 0; index < num_blocks; ++index) {
    const auto from = static_cast<size_t>(num_blocks - index);
    add_block(index, widths[from], widths[from - 1], config.dec_strides[from - 1]);
  }
  snake1_ = std::make_unique<Snake>(config.dec_dim);
  conv2_ = std::make_unique<SoundConv>(SoundConv::Shape1d{
      .in = config.dec_dim, .out = config.dec_out_channels, .kernel = 7, .bias = false});
  add_module("decoder.snake1", *snake1_);
  add_module("decoder.conv2", *conv2_);
}

void SoundDecoder::add_block(int64_t index, int64_t in, int64_t out, int64_t stride) {
  const std::string name = str_cat("decoder.block.", index);
  Block& block = blocks_.emplace_back();
  block.snake1 = std::make_unique<Snake>(in);
  block.conv_t1 = std::make_unique<SoundConv>(SoundConv::Shape1d{
      .in = in, .out = out, .kernel = 2 * stride, .stride = stride, .transposed = true});
  add_module(name + ".snake1", *block.snake1);
  add_module(name + ".conv_t1", *block.conv_t1);
  int64_t dilation = 1;
  for (int64_t unit = 1; unit <= 3; ++unit) {
    const std::string own = str_cat(name, ".res_unit", unit);
    ResUnit& parts = block.units.emplace_back();
    parts.snake1 = std::make_unique<Snake>(out);
    parts.conv1 = std::make_unique<SoundConv>(
        SoundConv::Shape1d{.in = out, .out = out, .kernel = 7, .dilation = dilation});
    parts.snake2 = std::make_unique<Snake>(out);
    parts.conv2 = std::make_unique<SoundConv>(SoundConv::Shape1d{.in = out, .out = out});
    add_module(own + ".snake1", *parts.snake1);
    add_module(own + ".conv1", *parts.conv1);
    add_module(own + ".snake2", *parts.snake2);
    add_module(own + ".conv2", *parts.conv2);
    dilation *= 3;
  }
}

void SoundDecoder::load(const CheckpointReader& reader, const FinalizeOptions& options) {
  NameMapping mapping;
  mapping.skip = {"^encoder"};  // generation never encodes sound
  load_strictly(reader, load_targets(), mapping);
  finalize(options);
  reader.release_pages();
}

Tensor SoundDecoder::decode(Stream& stream, const Tensor& latents) const {
  Tensor x = stream.empty({1, latents.dim(1), latents.dim(0)}, activation_dtype_);
  Tensor frames = x.select(0, 0);
  ops::copy(stream, latents.transpose(0, 1), frames);
  x = conv1_->forward(stream, x);
  for (const Block& block : blocks_) {
    x = block.conv_t1->forward(stream, block.snake1->forward(stream, x));
    for (const ResUnit& unit : block.units) {
      const Tensor inner = unit.conv1->forward(stream, unit.snake1->forward(stream, x));
      x = unit.conv2->forward(stream, unit.snake2->forward(stream, inner), x);
    }
  }
  x = conv2_->forward(stream, snake1_->forward(stream, x));
  Tensor out = stream.empty({x.dim(2), x.dim(1)}, DType::kF32);
  ops::copy(stream, x.select(0, 0).transpose(0, 1), out);
  return out;
}

Tensor to_pcm16(const Tensor& waveform) {
  const int64_t channels = waveform.dim(0);
  const int64_t samples = waveform.dim(1);
  Tensor out = Tensor::empty({samples, channels}, DType::kI16);
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t i = 0; i < samples; ++i) {
      const float value = waveform.data<float>()[channel * samples + i];
      out.data<int16_t>()[i * channels + channel] =
          static_cast<int16_t>(std::lrint(std::clamp(value, -1.0F, 1.0F) * 32767.0F));
    }
  }
  return out;
}

}  // namespace mstar::cosmos3
