// Routers, dispatch, sparse blocks.
#include <algorithm>
#include <utility>

#include "mstar/cli/golden/registry.h"
#include "mstar/components/moe.h"
#include "mstar/components/parallel/mlp.h"
#include "mstar/components/parallel/moe.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/moe.h"

namespace mstar::golden {

namespace {

using Pairs = std::vector<std::pair<int64_t, float>>;

// The choices of every token, by rising expert id: which of two comes first is free.
void split_sorted(const Tensor& ids, const Tensor& weights, Tensor& out_ids, Tensor& out_weights) {
  const std::vector<int64_t> experts = ids.to_ints();
  const std::vector<float> values = weights.to_floats();
  const auto k = static_cast<size_t>(ids.dim(1));
  std::vector<int64_t> sorted_ids;
  std::vector<float> sorted_values;
  for (size_t begin = 0; begin < experts.size(); begin += k) {
    Pairs pairs;
    for (size_t choice = begin; choice < begin + k; ++choice) {
      pairs.emplace_back(experts[choice], values[choice]);
    }
    std::ranges::sort(pairs);
    for (const auto& [id, value] : pairs) {
      sorted_ids.push_back(id);
      sorted_values.push_back(value);
    }
  }
  out_ids = Tensor::from(sorted_ids, ids.shape());
  out_weights = Tensor::from(sorted_values, weights.shape());
}

void run_router(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  TopKRouter router(golden.get_int("hidden_size"),
                    golden.get_int("num_experts"),
                    golden.get_int("num_experts_per_tok"),
                    golden.get_bool("norm_topk_prob", true));
  load_weights(golden, router, context);
  const Router::Output out = router.forward(context.stream, golden.tensor("x"));
  if (out.router_states_next.defined()) {
    result.fail("TopKRouter returned a state");
  }
  Tensor ids;
  Tensor weights;
  split_sorted(out.selected_experts, out.routing_weights, ids, weights);
  if (golden.has("selected_experts")) {
    Tensor want_ids;
    Tensor want_weights;
    split_sorted(golden.tensor("selected_experts"),
                 golden.tensor("routing_weights"),
                 want_ids,
                 want_weights);
    result.expect_equal_to("selected_experts", ids, want_ids);
    result.expect_equal_to("routing_weights", weights, want_weights);
  } else {  // ties: the weights fall in either order
    result.expect("selected_experts_sorted", ids);
    result.expect("routing_weights", out.routing_weights);
  }
}

void run_dispatch(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Tensor x = golden.tensor("x");
  const int64_t num_experts = golden.get_int("num_experts");
  const Tensor gate_up = golden.tensor("gate_up_proj");
  const Tensor down = golden.tensor("down_proj");
  const Tensor ids = golden.tensor("selected_experts");
  const Tensor weights = golden.tensor("routing_weights");
  const Tensor plain =
      dispatch_experts_fused(context.stream, {x, gate_up, down, num_experts, ids, weights});
  result.expect("out", plain, "expert by expert");
  result.expect_if_there("out_f32", plain, "expert by expert");

  ExpertWeights experts({.hidden_size = golden.get_int("hidden_size"),
                         .num_experts = num_experts,
                         .moe_intermediate_size = golden.get_int("moe_intermediate_size")});
  load_weights(golden, experts, context);
  const Tensor grouped = experts.forward(context.stream, x, weights, ids.to(DType::kI32));
  result.expect("out", grouped, "grouped");
  result.expect_if_there("out_f32", grouped, "grouped");
}

MoeConfig config_of(const GoldenCase& golden) {
  return {.hidden_size = golden.get_int("hidden_size"),
          .num_experts = golden.get_int("num_experts"),
          .num_experts_per_tok = golden.get_int("num_experts_per_tok"),
          .moe_intermediate_size = golden.get_int("moe_intermediate_size"),
          .norm_topk_prob = golden.get_bool("norm_topk_prob", true)};
}

void run_sparse_block(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  SparseMoeBlock block(config_of(golden));
  load_weights(golden, block, context);
  result.expect("out", block.forward(context.stream, golden.tensor("x")), "SparseMoeBlock");
}

void run_shared_block(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const MoeConfig config = config_of(golden);
  SparseMoeBlockWithSharedExpert block(
      config,
      std::make_unique<GatedMLP>(config.hidden_size,
                                 golden.get_int("shared_expert_intermediate_size")));
  load_weights(golden, block, context);
  result.expect(
      "out", block.forward(context.stream, golden.tensor("x")), "SparseMoeBlockWithSharedExpert");
}

// logits = gate(x) + state, which is also the next state; weights are not renormalized.
class StatefulRouter : public Router {
 public:
  StatefulRouter(const MoeConfig& config)
      : num_experts_per_tok_(config.num_experts_per_tok),
        parameter_(&add_parameter("weight",
                                  {config.num_experts, config.hidden_size},
                                  ParameterKind::kMatrix)) {}

  Output forward(Stream& stream, const Tensor& x, const Tensor& states) const override {
    Output out;
    Epilogue epilogue;
    epilogue.residual = states;
    out.router_states_next = linear_rows(stream, x, weight_, epilogue, DType::kF32);
    out.routing_weights = stream.empty({x.dim(0), num_experts_per_tok_}, DType::kF32);
    out.selected_experts = stream.empty({x.dim(0), num_experts_per_tok_}, DType::kI32);
    ops::route_top_k(
        stream, out.router_states_next, false, out.routing_weights, out.selected_experts);
    return out;
  }

 protected:
  void pack(const FinalizeOptions& options) override {
    weight_ = take_packed(*parameter_, options);
  }

 private:
  int64_t num_experts_per_tok_;
  Parameter* parameter_;
  PackedWeight weight_;
};

void run_custom_router(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const MoeConfig config = config_of(golden);
  SparseMoeBlock single(config, std::make_unique<StatefulRouter>(config));
  ParallelSparseMoeBlock parallel(config, std::make_unique<StatefulRouter>(config));
  load_weights(golden, single, context);
  load_weights(golden, parallel, context);
  const auto check = [&](const auto& block, const char* variant) {
    Tensor next;
    const Tensor out =
        block.forward(context.stream, golden.tensor("x"), golden.tensor("router_states"), &next);
    result.expect("out", out, variant);
    result.expect("router_states_next", next, variant);
  };
  check(single, "SparseMoeBlock");
  check(parallel, "ParallelSparseMoeBlock");
}

}  // namespace

void add_moe_kinds(Registry& registry) {
  registry.add_class("TopKRouter", run_router);
  registry.add_class("dispatch_experts_fused", run_dispatch);
  registry.add_class("SparseMoeBlock", run_sparse_block);
  registry.add_class("SparseMoeBlockWithSharedExpert", run_shared_block);
  registry.add_prefix("moe_custom_router", run_custom_router);
}

}  // namespace mstar::golden
