// RMSNorm, AdaRMSNorm, LayerNorm.
#include "mstar/cli/golden/registry.h"
#include "mstar/components/norm.h"

namespace mstar::golden {

namespace {

void run_rms_norm(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const auto eps = static_cast<float>(golden.get_double("eps"));
  RMSNorm norm(golden.get_int("hidden_size"), eps, golden.get_bool("gemma_mode", false));
  load_weights(golden, norm, context);
  const Tensor x = golden.tensor("x");
  result.expect("out", norm.forward(context.stream, x));
  Tensor in_place = x.copy();
  norm.forward_inplace(context.stream, in_place);
  result.expect("out", in_place, "in place");
  Tensor residual = Tensor::zeros(x.shape(), x.dtype());
  result.expect("out", norm.forward_add(context.stream, x, residual), "with a residual of zeros");
}

void run_layer_norm(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  LayerNorm norm(golden.get_int("hidden_size"), static_cast<float>(golden.get_double("eps")));
  load_weights(golden, norm, context);
  result.expect("out", norm.forward(context.stream, golden.tensor("x")));
}

void run_ada_rms_norm(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  AdaRMSNorm norm(golden.get_int("hidden_size"),
                  golden.get_int("cond_dim"),
                  static_cast<float>(golden.get_double("eps")));
  load_weights(golden, norm, context);
  const AdaRMSNorm::Output out =
      norm.forward(context.stream, golden.tensor("x"), golden.tensor("cond"));
  result.expect("out", out.normed);
  // Recorded once per row of x; here one row serves its whole run.
  const int64_t repeats = out.gate.dim(0) == 0 ? 1 : out.normed.dim(0) / out.gate.dim(0);
  std::vector<float> gate;
  for (int64_t row = 0; row < out.normed.dim(0); ++row) {
    const std::vector<float> values = out.gate.select(0, row / repeats).to_floats();
    gate.insert(gate.end(), values.begin(), values.end());
  }
  result.expect("gate", Tensor::from(gate, out.normed.shape()));
}

}  // namespace

void add_norm_kinds(Registry& registry) {
  registry.add_class("RMSNorm", run_rms_norm);
  registry.add_class("LayerNorm", run_layer_norm);
  registry.add_class("AdaRMSNorm", run_ada_rms_norm);
}

}  // namespace mstar::golden
