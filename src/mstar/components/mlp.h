#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "mstar/components/linear.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar {

// An activation by enumerator, by Hugging Face name ("silu", "gelu", "gelu_tanh", …), or any
// function of a stream (out has the shape and type of x and may be x). Named ones are fused into
// the matmul before them.
class ActivationFunction {
 public:
  using Function = std::function<void(Stream& stream, const Tensor& x, Tensor& out)>;

  ActivationFunction(Activation activation) : activation_(activation) {}  // NOLINT: values convert

  ActivationFunction(std::string_view name) : activation_(parse_activation(name)) {}  // NOLINT

  ActivationFunction(const std::string& name) : activation_(parse_activation(name)) {}  // NOLINT

  ActivationFunction(const char* name) : activation_(parse_activation(name)) {}  // NOLINT

  ActivationFunction(Function function) : function_(std::move(function)) {}  // NOLINT

  // kNone for functions.
  Activation fused() const { return activation_; }

  bool is_function() const { return static_cast<bool>(function_); }

  void apply(Stream& stream, const Tensor& x, Tensor& out) const;

  // out = f(gate) * up
  void apply_gated(Stream& stream, const Tensor& gate, const Tensor& up, Tensor& out) const;

 private:
  Activation activation_ = Activation::kNone;
  Function function_;
};

// A feed-forward block: what decoder layers take.
class FeedForward : public Module {
 public:
  // x [..., hidden_size] -> the same shape and type, plus `residual` of that shape when given.
  virtual Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const = 0;
};

// out(act(in(x))): small projections that are not gated. Checkpoint names: fc_in, fc_out.
class MLP : public FeedForward {
 public:
  struct Config {
    int64_t input_size = 0;
    int64_t intermediate_size = 0;
    std::optional<int64_t> output_size{};  // input_size when absent
    ActivationFunction activation = Activation::kSilu;
    bool bias = true;
  };

  explicit MLP(const Config& config);

  // x [..., input_size] -> [..., output_size]
  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;

 private:
  Linear fc_in_;
  Linear fc_out_;
  ActivationFunction activation_;
};

// down(act(gate(x)) * up(x)). Checkpoint names: gate_proj, up_proj, down_proj.
class GatedMLP : public FeedForward {
 public:
  GatedMLP(int64_t hidden_size,
           int64_t intermediate_size,
           ActivationFunction activation = Activation::kSilu,
           bool bias = false);

  // Fuses the loaded gate and up weights into one matrix, so that one matmul computes both, and
  // drops the originals; between loading and finalize(). Calling again does nothing. Weights of
  // different block types stay apart. Throws Error(kUnsupported) with biases.
  void consolidate_gate_up_weight();

  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;

  // [2 intermediate_size, hidden_size] between consolidation and finalize(), else undefined.
  const StackedRows& gate_up_proj_weight() const { return gate_up_proj_weight_; }

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  Linear gate_proj_;
  Linear up_proj_;
  Linear down_proj_;
  ActivationFunction activation_;
  StackedRows gate_up_proj_weight_;
  PackedWeight gate_up_proj_;
};

// GatedMLP whose gate and up projections are one layer from the start; checkpoints' gate_proj and
// up_proj go into gate_up_proj as shards "0" and "1" (stacked_rules()).
class FusedGatedMLP : public FeedForward {
 public:
  FusedGatedMLP(int64_t hidden_size,
                int64_t intermediate_size,
                ActivationFunction activation = Activation::kSilu,
                bool bias = false);

  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;

  static std::vector<StackedParamRule> stacked_rules();

 private:
  FusedColumnLinear gate_up_proj_;
  Linear down_proj_;
  ActivationFunction activation_;
};

// out [..., n] = activation(gate_up[..., :n]) * gate_up[..., n:]
Tensor gated_activation(Stream& stream,
                        const Tensor& gate_up,
                        const ActivationFunction& activation);

}  // namespace mstar
