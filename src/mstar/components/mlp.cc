#include "mstar/components/mlp.h"

#include "mstar/base/check.h"
#include "mstar/base/error.h"

namespace mstar {

namespace {

Epilogue plus(const Tensor& residual) {
  Epilogue epilogue;
  epilogue.residual = residual;
  return epilogue;
}

Epilogue activated(const ActivationFunction& activation) {
  Epilogue epilogue;
  epilogue.activation = activation.fused();
  return epilogue;
}

}  // namespace

void ActivationFunction::apply(Stream& stream, const Tensor& x, Tensor& out) const {
  if (function_) {
    function_(stream, x, out);
  } else {
    ops::activate(stream, x, activation_, out);
  }
}

void ActivationFunction::apply_gated(Stream& stream,
                                     const Tensor& gate,
                                     const Tensor& up,
                                     Tensor& out) const {
  if (function_) {
    Tensor activated = stream.empty(gate.shape(), gate.dtype());
    function_(stream, gate, activated);
    ops::mul(stream, activated, up, out);
  } else {
    ops::gated_activation(stream, gate, up, activation_, out);
  }
}

Tensor gated_activation(Stream& stream,
                        const Tensor& gate_up,
                        const ActivationFunction& activation) {
  const Tensor rows = gate_up.as_rows();
  const int64_t size = rows.dim(1) / 2;
  Shape shape = gate_up.shape();
  shape[-1] = size;
  Tensor out = stream.empty(shape, gate_up.dtype());
  Tensor out_rows = out.as_rows();
  if (activation.is_function()) {
    Tensor gate = stream.empty(out_rows.shape(), out.dtype());
    ops::copy(stream, rows.slice(1, 0, size), gate);
    activation.apply_gated(stream, gate, rows.slice(1, size, 2 * size), out_rows);
  } else {
    ops::gated_activation(stream, rows, activation.fused(), out_rows);
  }
  return out;
}

MLP::MLP(const Config& config)
    : fc_in_(config.input_size, config.intermediate_size, config.bias),
      fc_out_(config.intermediate_size,
              config.output_size.value_or(config.input_size),
              config.bias),
      activation_(config.activation) {
  add_module("fc_in", fc_in_);
  add_module("fc_out", fc_out_);
}

Tensor MLP::forward(Stream& stream, const Tensor& x, const Tensor& residual) const {
  Tensor hidden = fc_in_.forward(stream, x, activated(activation_));
  if (activation_.is_function()) {
    activation_.apply(stream, hidden, hidden);
  }
  return fc_out_.forward(stream, hidden, plus(residual));
}

GatedMLP::GatedMLP(int64_t hidden_size,
                   int64_t intermediate_size,
                   ActivationFunction activation,
                   bool bias)
    : gate_proj_(hidden_size, intermediate_size, bias),
      up_proj_(hidden_size, intermediate_size, bias),
      down_proj_(intermediate_size, hidden_size, bias),
      activation_(std::move(activation)) {
  add_module("gate_proj", gate_proj_);
  add_module("up_proj", up_proj_);
  add_module("down_proj", down_proj_);
}

void GatedMLP::consolidate_gate_up_weight() {
  if (gate_proj_.has_bias()) {
    throw Error(ErrorCode::kUnsupported,
                "[GatedMLP] gate and up projections with biases cannot be consolidated; use "
                "FusedGatedMLP");
  }
  if (gate_proj_.gave_up_weight()) {
    return;
  }
  gate_up_proj_weight_ = stack_rows({&gate_proj_.weight_parameter(), &up_proj_.weight_parameter()});
  if (gate_up_proj_weight_.defined()) {
    gate_proj_.give_up_weight();
    up_proj_.give_up_weight();
  }
}

void GatedMLP::pack(const FinalizeOptions& options) {
  if (gate_up_proj_weight_.defined()) {
    gate_up_proj_ = PackedWeight::pack(
        gate_up_proj_weight_.parts, options.pool, options.weight_format, options.activations);
    gate_up_proj_weight_ = {};
  }
}

Tensor GatedMLP::forward(Stream& stream, const Tensor& x, const Tensor& residual) const {
  Tensor hidden;
  if (gate_up_proj_.defined()) {
    hidden =
        gated_activation(stream, linear_rows(stream, x, gate_up_proj_, {}, x.dtype()), activation_);
  } else {
    const Tensor gate = gate_proj_.forward(stream, x);
    const Tensor up = up_proj_.forward(stream, x);
    hidden = stream.empty(gate.shape(), gate.dtype());
    activation_.apply_gated(stream, gate, up, hidden);
  }
  return down_proj_.forward(stream, hidden, plus(residual));
}

FusedGatedMLP::FusedGatedMLP(int64_t hidden_size,
                             int64_t intermediate_size,
                             ActivationFunction activation,
                             bool bias)
    : gate_up_proj_(hidden_size, {{"0", intermediate_size}, {"1", intermediate_size}}, bias),
      down_proj_(intermediate_size, hidden_size, bias),
      activation_(std::move(activation)) {
  add_module("gate_up_proj", gate_up_proj_);
  add_module("down_proj", down_proj_);
}

std::vector<StackedParamRule> FusedGatedMLP::stacked_rules() {
  return {{"gate_up_proj", "gate_proj", "0"}, {"gate_up_proj", "up_proj", "1"}};
}

Tensor FusedGatedMLP::forward(Stream& stream, const Tensor& x, const Tensor& residual) const {
  const Tensor gate_up = gate_up_proj_.forward(stream, x);
  const Tensor hidden = gated_activation(stream, gate_up, activation_);
  return down_proj_.forward(stream, hidden, plus(residual));
}

}  // namespace mstar
