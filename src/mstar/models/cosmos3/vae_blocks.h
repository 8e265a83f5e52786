// Building blocks of the Wan 2.2 video VAE, channels last [t, h, w, c], with the caches that make a
// clip computed chunk by chunk equal to the reference's function (one shot over time is another
// one). All compute in the type of what they are given, f32 or bf16; weights become bf16 where
// FinalizeOptions::weight_format says so. Module names are the checkpoint's. const after
// finalize().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/components/module.h"
#include "mstar/kernels/ops/conv.h"
#include "mstar/kernels/ops/matmul.h"

namespace mstar::cosmos3 {

// What the causal convolutions of one clip remember between chunks. Made for one encoder or
// decoder; belongs to one clip at a time. Its tensors come from the stream that computes.
class VaeCache {
 public:
  bool is_first_chunk() const { return num_chunks_ == 0; }

  void next_chunk() { ++num_chunks_; }

  // The last input frames of convolution `index`; undefined before the first.
  Tensor& history(int index) {
    const auto at = static_cast<size_t>(index);
    if (at >= histories_.size()) {
      histories_.resize(at + 1);
    }
    return histories_[at];
  }

  // The same state in memory of its own, for keeping it longer than the stream lives.
  VaeCache copy() const {
    VaeCache out = *this;
    for (Tensor& history : out.histories_) {
      history = history.defined() ? history.copy() : history;
    }
    return out;
  }

  int64_t size_bytes() const {
    int64_t size = 0;
    for (const Tensor& history : histories_) {
      size += history.defined() ? history.size_bytes() : 0;
    }
    return size;
  }

 private:
  std::vector<Tensor> histories_;
  int64_t num_chunks_ = 0;
};

// Hands out cache indices and remembers which convolution has which, for tests.
struct CacheLayout {
  std::vector<std::string> names;

  int add(std::string name) {
    names.push_back(std::move(name));
    return static_cast<int>(names.size()) - 1;
  }
};

// A convolution's weight and bias in the checkpoint, and the one place where they become what the
// convolution runs with.
class VaeFilter : public Module {
 protected:
  VaeFilter(const Shape& weight, int64_t num_biases);

  void pack(const FinalizeOptions& options) final;

  // Once, with what was loaded.
  virtual void pack_filter(const Tensor& weight,
                           const Tensor& bias,
                           const FinalizeOptions& options) = 0;

 private:
  Parameter* weight_parameter_;
  Parameter* bias_parameter_;
};

// A convolution of one, two or three axes and its bias.
class VaeConv : public VaeFilter {
 public:
  // kernel (t, h, w); `axes` 2: the checkpoint's weight has no time axis.
  VaeConv(int64_t in, int64_t out, std::array<int64_t, 3> kernel, int axes);

  // Over x [t, h, w, in], with `history` frames before it. The result's shape follows.
  Tensor forward(Stream& stream,
                 const Tensor& x,
                 const Tensor& history,
                 const ConvOptions& options) const;

 protected:
  void pack_filter(const Tensor& weight,
                   const Tensor& bias,
                   const FinalizeOptions& options) override;

 private:
  int64_t out_;
  std::array<int64_t, 3> kernel_;
  int axes_;
  PackedConv conv_;
};

// A 3x3x3 convolution that sees only the past in time: two frames before, kept in the cache.
class CausalConv : public VaeConv {
 public:
  CausalConv(int64_t in, int64_t out, int cache_index)
      : VaeConv(in, out, {3, 3, 3}, 3), cache_index_(cache_index) {}

  Tensor run(Stream& stream, const Tensor& x, VaeCache& cache, const Tensor& residual = {}) const;

 private:
  int cache_index_;
};

// The nearest-neighbour picture of twice the size and a 3x3 convolution over it, without the large
// picture: of the nine taps of an output pixel only four pixels of x are apart, so each of the four
// kinds of output pixel (even and odd row and column) is a 2x2 convolution of x whose weights are
// sums of the checkpoint's. 4 / 9 of the operations.
class UpsampleConv : public VaeFilter {
 public:
  explicit UpsampleConv(int64_t channels);

  // x [t, h, w, c] -> [t, 2 h, 2 w, c]
  Tensor forward(Stream& stream, const Tensor& x) const;

 protected:
  void pack_filter(const Tensor& weight,
                   const Tensor& bias,
                   const FinalizeOptions& options) override;

 private:
  int64_t channels_;
  std::array<PackedConv, 4> phases_;  // 2 * odd row + odd column
};

// A convolution over three frames in time to twice the channels, whose halves are the even and the
// odd frames of the result.
class FrameDoublingConv : public VaeFilter {
 public:
  explicit FrameDoublingConv(int64_t channels);

  // x [t, h, w, c] with `history` before it, as `options` pad it -> [2 t', h, w, c]
  Tensor forward(Stream& stream,
                 const Tensor& x,
                 const Tensor& history,
                 const ConvOptions& options) const;

 protected:
  void pack_filter(const Tensor& weight,
                   const Tensor& bias,
                   const FinalizeOptions& options) override;

 private:
  int64_t channels_;
  std::array<PackedConv, 2> halves_;
};

// The last `count` frames of [history | x], of their own memory; zeros stand before them. x itself
// when it is just those frames and `may_share`: nobody will write to it.
Tensor last_frames(Stream& stream,
                   const Tensor& history,
                   const Tensor& x,
                   int64_t count,
                   bool may_share);

// x / ||x|| * sqrt(c) * gamma over channels.
class ChannelNorm : public Module {
 public:
  // `gamma_dims`: 3 for video layers, 2 inside attention.
  ChannelNorm(int64_t channels, int gamma_dims);

  Tensor forward(Stream& stream, const Tensor& x, bool silu) const;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  Parameter* parameter_;
  Tensor gamma_;
};

class ResidualBlock : public Module {
 public:
  ResidualBlock(int64_t in, int64_t out, const std::string& name, CacheLayout& layout);

  Tensor forward(Stream& stream, const Tensor& x, VaeCache& cache) const;

 private:
  ChannelNorm norm1_;
  CausalConv conv1_;
  ChannelNorm norm2_;
  CausalConv conv2_;
  std::unique_ptr<VaeConv> shortcut_;  // null: in == out
};

// Attention of a frame's pixels among each other, one head of all channels.
class VaeAttention : public Module {
 public:
  explicit VaeAttention(int64_t channels);

  Tensor forward(Stream& stream, const Tensor& x) const;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  int64_t channels_;
  ChannelNorm norm_;
  Parameter* qkv_weight_parameter_;
  Parameter* qkv_bias_parameter_;
  Parameter* proj_weight_parameter_;
  Parameter* proj_bias_parameter_;
  PackedWeight qkv_;
  Tensor qkv_bias_;
  PackedWeight proj_;
  Tensor proj_bias_;
};

class MidBlock : public Module {
 public:
  MidBlock(int64_t channels, const std::string& name, CacheLayout& layout);

  Tensor forward(Stream& stream, const Tensor& x, VaeCache& cache) const;

 private:
  ResidualBlock first_;
  VaeAttention attention_;
  ResidualBlock second_;
};

// Halves (down) or doubles (up) the picture, and with `temporal` the frame count.
class Downsampler : public Module {
 public:
  Downsampler(int64_t channels, bool temporal, const std::string& name, CacheLayout& layout);

  Tensor forward(Stream& stream, const Tensor& x, VaeCache& cache) const;

 private:
  VaeConv resample_;
  std::unique_ptr<VaeConv> time_conv_;  // null: not temporal
  int cache_index_ = -1;
};

class Upsampler : public Module {
 public:
  Upsampler(int64_t channels, bool temporal, const std::string& name, CacheLayout& layout);

  Tensor forward(Stream& stream, const Tensor& x, VaeCache& cache) const;

 private:
  UpsampleConv resample_;
  std::unique_ptr<FrameDoublingConv> time_conv_;
  int cache_index_ = -1;
};

}  // namespace mstar::cosmos3
