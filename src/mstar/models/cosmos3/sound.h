// The AVAE sound decoder (sound_tokenizer/): sound latents to a waveform, the whole clip at once,
// computed in f32 or bf16. const after load().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"
#include "mstar/components/module.h"
#include "mstar/kernels/ops/conv.h"
#include "mstar/models/cosmos3/config.h"

namespace mstar::cosmos3 {

// A convolution over time whose weight is stored as direction and length:
// weight = weight_g * weight_v / ||weight_v||, folded in f32 while loading, then bf16 where
// FinalizeOptions::weight_format says so.
class SoundConv : public Module {
 public:
  struct Shape1d {
    int64_t in = 0;
    int64_t out = 0;
    int64_t kernel = 1;
    int64_t dilation = 1;
    int64_t stride = 1;       // of a transposed one
    bool transposed = false;  // the checkpoint stores [in, out, kernel]
    bool bias = true;
  };

  explicit SoundConv(const Shape1d& shape);

  // x [n, l, in] -> [n, l, out], or [n, l * stride, out] when transposed.
  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  Shape1d shape_;
  Parameter* length_parameter_;
  Parameter* direction_parameter_;
  Parameter* bias_parameter_ = nullptr;
  PackedConv conv_;
};

// The direction scaled to length, [dim 0, …] f32: rows are dim 0.
Tensor fold_weight_norm(const Tensor& length, const Tensor& direction);

// x + sin(exp(alpha) x)^2 / (exp(beta) + 1e-9) per channel.
class Snake : public Module {
 public:
  explicit Snake(int64_t channels);

  Tensor forward(Stream& stream, const Tensor& x) const;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  Parameter* alpha_parameter_;
  Parameter* beta_parameter_;
  Tensor frequency_;
  Tensor inverse_amplitude_;
};

class SoundDecoder : public Module {
 public:
  explicit SoundDecoder(const SoundConfig& config, DType activation_dtype = DType::kF32);

  void load(const CheckpointReader& reader, const FinalizeOptions& options);

  // latents [channels, frames] f32 -> [out channels, frames * hop] f32, not clamped.
  Tensor decode(Stream& stream, const Tensor& latents) const;

 private:
  struct ResUnit {
    std::unique_ptr<Snake> snake1;
    std::unique_ptr<SoundConv> conv1;
    std::unique_ptr<Snake> snake2;
    std::unique_ptr<SoundConv> conv2;
  };

  struct Block {
    std::unique_ptr<Snake> snake1;
    std::unique_ptr<SoundConv> conv_t1;
    std::vector<ResUnit> units;
  };

  void add_block(int64_t index, int64_t in, int64_t out, int64_t stride);

  SoundConfig config_;
  DType activation_dtype_;
  std::unique_ptr<SoundConv> conv1_;
  std::vector<Block> blocks_;
  std::unique_ptr<Snake> snake1_;
  std::unique_ptr<SoundConv> conv2_;
};

// [channels, samples] f32 -> interleaved 16-bit samples [samples, channels]: round(clamp(x) *
// 32767).
Tensor to_pcm16(const Tensor& waveform);

}  // namespace mstar::cosmos3
