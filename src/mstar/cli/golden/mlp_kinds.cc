// Activations, MLPs, fused linears, embeddings.
#include "mstar/cli/golden/registry.h"
#include "mstar/components/embedding.h"
#include "mstar/components/mlp.h"

namespace mstar::golden {

namespace {

void run_activation(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Tensor x = golden.tensor("x");
  Tensor out = context.stream.empty(x.shape(), x.dtype());
  ops::activate(context.stream, x, parse_activation(golden.get_string("activation")), out);
  result.expect("out", out);
}

void run_mlp(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Json* output_size = golden.config.find("output_size");
  MLP::Config config{.input_size = golden.get_int("input_size"),
                     .intermediate_size = golden.get_int("intermediate_size"),
                     .activation = golden.get_string("activation"),
                     .bias = golden.get_bool("bias", true)};
  if (output_size != nullptr && !output_size->is_null()) {
    config.output_size = output_size->get_int();
  }
  MLP mlp(config);
  load_weights(golden, mlp, context);
  result.expect("out", mlp.forward(context.stream, golden.tensor("x")));
}

void run_gated_mlp(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const bool bias = golden.get_bool("bias", false);
  for (const bool consolidated : {false, true}) {
    if (bias && consolidated) {
      continue;
    }
    GatedMLP mlp(golden.get_int("hidden_size"),
                 golden.get_int("intermediate_size"),
                 golden.get_string("activation"),
                 bias);
    load_only(golden, mlp);
    if (consolidated) {
      mlp.consolidate_gate_up_weight();
    }
    mlp.finalize({context.pool});
    const Tensor out = mlp.forward(context.stream, golden.tensor("x"));
    const char* variant = consolidated ? "GatedMLP consolidated" : "GatedMLP";
    result.expect("out", out, variant);
    result.expect_if_there("out_f32", out, variant);
  }
}

void run_fused_gated_mlp(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  FusedGatedMLP mlp(golden.get_int("hidden_size"),
                    golden.get_int("intermediate_size"),
                    golden.get_string("activation"),
                    golden.get_bool("bias", false));
  NameMapping mapping;
  mapping.stacked = FusedGatedMLP::stacked_rules();
  load_weights(golden, mlp, context, mapping);
  const Tensor out = mlp.forward(context.stream, golden.tensor("x"));
  result.expect("out", out, "FusedGatedMLP");
  result.expect_if_there("out_f32", out, "FusedGatedMLP");
}

void run_fused_column_linear(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  FusedColumnLinear::ShardSizes sizes;
  NameMapping mapping;
  for (const Json& item : golden.config.at("shard_order").get_array()) {
    const std::string& id = item.get_string();
    sizes.emplace_back(id, golden.config.at("shard_sizes").at(id).get_int());
    mapping.stacked.push_back({"", "^" + id, id});
  }
  FusedColumnLinear linear(golden.get_int("input_size"), sizes, golden.get_bool("bias", false));
  load_only(golden, linear, mapping);
  result.expect("fused_weight", linear.fused_weight());
  if (golden.has("fused_bias")) {
    result.expect("fused_bias", linear.fused_bias());
  }
  linear.finalize({context.pool});
  const Tensor out = linear.forward(context.stream, golden.tensor("x"));
  result.expect("out", out);
  const std::vector<Tensor> parts = linear.split(out);
  for (size_t index = 0; index < sizes.size(); ++index) {
    result.expect("out_" + sizes[index].first, parts[index]);
  }
}

void run_tied_head(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const int64_t vocab = golden.get_int("vocab_size");
  const int64_t hidden = golden.get_int("hidden_size");
  Embedding table(vocab, hidden);
  load_weights(golden, table, context);
  Linear head(hidden, vocab);
  head.tie_weight(table.weight(), {context.pool});
  head.finalize({context.pool});
  const Tensor rows = table.forward(context.stream, golden.tensor("ids"), DType::kF32);
  result.expect("rows", rows);
  result.expect("logits", head.forward(context.stream, rows));
}

}  // namespace

void add_mlp_kinds(Registry& registry) {
  registry.add_prefix("activation_", run_activation);
  registry.add_class("MLP", run_mlp);
  registry.add_class("GatedMLP", run_gated_mlp);
  registry.add_class("FusedGatedMLP", run_fused_gated_mlp);
  registry.add_class("FusedColumnLinear", run_fused_column_linear);
  registry.add_prefix("embedding_tied_head", run_tied_head);
}

}  // namespace mstar::golden
