#include "mstar/components/parallel/mlp.h"

namespace mstar {

ParallelGatedMLP::ParallelGatedMLP(CommGroup& comm, const ParallelGatedMlpConfig& config)
    : gate_up_proj_(comm,
                    config.hidden_size,
                    {config.intermediate_size, config.intermediate_size},
                    {.bias = config.bias}),
      down_proj_(comm,
                 config.intermediate_size,
                 config.hidden_size,
                 {.bias = config.bias, .reduce_results = config.reduce_results}),
      activation_(config.activation) {
  add_module("gate_up_proj", gate_up_proj_);
  add_module("down_proj", down_proj_);
}

Tensor ParallelGatedMLP::forward(Stream& stream, const Tensor& x, const Tensor& residual) const {
  const Tensor gate_up = gate_up_proj_.forward(stream, x);
  return down_proj_.forward(stream, gated_activation(stream, gate_up, activation_), residual);
}

ParallelGatedMLPUnfused::ParallelGatedMLPUnfused(CommGroup& comm,
                                                 const ParallelGatedMlpConfig& config)
    : gate_proj_(comm, config.hidden_size, config.intermediate_size, {.bias = config.bias}),
      up_proj_(comm, config.hidden_size, config.intermediate_size, {.bias = config.bias}),
      down_proj_(comm,
                 config.intermediate_size,
                 config.hidden_size,
                 {.bias = config.bias, .reduce_results = config.reduce_results}),
      activation_(config.activation) {
  add_module("gate_proj", gate_proj_);
  add_module("up_proj", up_proj_);
  add_module("down_proj", down_proj_);
}

Tensor ParallelGatedMLPUnfused::forward(Stream& stream,
                                        const Tensor& x,
                                        const Tensor& residual) const {
  const Tensor gate = gate_proj_.forward(stream, x);
  const Tensor up = up_proj_.forward(stream, x);
  Tensor hidden = stream.empty(gate.shape(), gate.dtype());
  activation_.apply_gated(stream, gate, up, hidden);
  return down_proj_.forward(stream, hidden, residual);
}

}  // namespace mstar
