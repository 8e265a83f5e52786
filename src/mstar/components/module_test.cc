#include "mstar/components/module.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mstar/base/error.h"
#include "mstar/components/attention.h"
#include "mstar/components/embedding.h"
#include "mstar/components/mlp.h"
#include "mstar/components/moe.h"
#include "mstar/components/norm.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

// Deterministic values of a spread around zero.
Tensor noise(const Shape& shape, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  uint32_t state = seed * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
  }
  return Tensor::from(values, shape);
}

class ModuleTest : public ::testing::Test {
 protected:
  ModuleTest() : pool_(1), stream_(pool_) {}

  // Loads every parameter with noise and finalizes.
  void fill(Module& module) {
    uint32_t seed = 1;
    for (const LoadTarget& target : module.load_targets()) {
      for (const ShardSpec& spec : target.parameter->shards()) {
        target.weight_loader(*target.parameter, noise(spec.shape, ++seed), spec.id);
      }
    }
    module.finalize({pool_});
  }

  ThreadPool pool_;
  CpuStream stream_;
};

TEST_F(ModuleTest, NamesAreTheCheckpoints) {
  const MoeConfig config{
      .hidden_size = 4, .num_experts = 2, .num_experts_per_tok = 1, .moe_intermediate_size = 3};
  SparseMoeBlockWithSharedExpert block(config, std::make_unique<GatedMLP>(4, 5));
  std::vector<std::string> names;
  for (const LoadTarget& target : block.load_targets("mlp")) {
    names.push_back(target.name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"mlp.gate.weight",
                                      "mlp.experts.gate_up_proj",
                                      "mlp.experts.down_proj",
                                      "mlp.shared_expert.gate_proj.weight",
                                      "mlp.shared_expert.up_proj.weight",
                                      "mlp.shared_expert.down_proj.weight",
                                      "mlp.shared_expert_gate.weight"}));
  EXPECT_NE(block.find_parameter("shared_expert.up_proj.weight"), nullptr);
  EXPECT_EQ(block.find_parameter("shared_expert.up_proj"), nullptr);
}

TEST_F(ModuleTest, WrongLoadsAreRefused) {
  FusedColumnLinear fused(4, {{"q", 2}, {"k", 3}}, true);
  Parameter& weight = *fused.find_parameter("weight");
  fused.weight_loader(weight, noise({2, 4}, 1), "q");
  EXPECT_THROW(fused.weight_loader(weight, noise({2, 4}, 1), "q"), Error);
  EXPECT_THROW(fused.weight_loader(weight, noise({2, 4}, 1), "k"), Error);
  EXPECT_THROW(fused.weight_loader(weight, noise({3, 4}, 1), "v"), Error);
  EXPECT_THROW(fused.weight_loader(weight, Tensor::from(std::vector<int32_t>(12), {3, 4}), "k"),
               Error);
}

TEST_F(ModuleTest, ConsolidationChangesNothingAndNeedsNoBias) {
  const Attention::Config config{
      .hidden_size = 8, .num_heads = 4, .num_kv_heads = 2, .head_dim = 4, .qk_norm = true};
  Attention plain(config);
  Attention fused(config);
  const auto load = [&](Attention& attention) {
    uint32_t seed = 1;
    for (const LoadTarget& target : attention.load_targets()) {
      target.parameter->load(noise(target.parameter->whole_shape(), ++seed));
    }
  };
  load(plain);
  load(fused);
  fused.consolidate_qkv_weight();
  EXPECT_EQ(fused.qkv_proj_weight().shape(), (Shape{32, 8}));
  fused.consolidate_qkv_weight();
  plain.finalize({pool_});
  fused.finalize({pool_});
  const Tensor x = noise({3, 8}, 7);
  const Qkv a = plain.project(stream_, x);
  const Qkv b = fused.project(stream_, x);
  EXPECT_EQ(a.q.copy().to_floats(), b.q.copy().to_floats());
  EXPECT_EQ(a.k.copy().to_floats(), b.k.copy().to_floats());
  EXPECT_EQ(a.v.copy().to_floats(), b.v.copy().to_floats());

  Attention::Config biased = config;
  biased.qkv_bias = true;
  Attention with_bias(biased);
  EXPECT_THROW(with_bias.consolidate_qkv_weight(), Error);
  GatedMLP mlp(8, 4, Activation::kSilu, true);
  EXPECT_THROW(mlp.consolidate_gate_up_weight(), Error);
}

TEST_F(ModuleTest, ResidualsAndCallableActivations) {
  GatedMLP named(8, 6, "relu");
  GatedMLP called(8, 6, ActivationFunction::Function([](Stream& s, const Tensor& x, Tensor& out) {
                    ops::activate(s, x, Activation::kRelu, out);
                  }));
  FusedGatedMLP fused(
      8, 6, ActivationFunction::Function([](Stream& s, const Tensor& x, Tensor& out) {
        ops::activate(s, x, Activation::kRelu, out);
      }));
  fill(named);
  fill(called);
  fill(fused);
  const Tensor x = noise({3, 8}, 5);
  const Tensor residual = noise({3, 8}, 6);
  const Tensor alone = named.forward(stream_, x);
  Tensor sum = Tensor::empty({3, 8}, DType::kF32);
  ops::add(stream_, alone, residual, sum);
  const Tolerance close{1e-6, 1e-6};
  EXPECT_TRUE(compare(named.forward(stream_, x, residual), sum, close).passed);
  EXPECT_TRUE(compare(called.forward(stream_, x), alone, close).passed);
  EXPECT_TRUE(compare(fused.forward(stream_, x), alone, close).passed);
  EXPECT_THROW(ActivationFunction("tanhh"), Error);
}

TEST_F(ModuleTest, UnloadedNormsAreTheIdentityOfTheirKind) {
  RMSNorm norm(4);
  RMSNorm gemma(4, 1e-6F, true);
  AdaRMSNorm ada(4, 3);
  norm.finalize({pool_});
  gemma.finalize({pool_});
  ada.finalize({pool_});
  const Tensor x = noise({2, 4}, 3);
  const Tensor want = norm.forward(stream_, x);
  EXPECT_EQ(gemma.forward(stream_, x).to_floats(), want.to_floats());
  const AdaRMSNorm::Output out = ada.forward(stream_, x, noise({2, 3}, 4));
  EXPECT_TRUE(compare(out.normed, want, {1e-6, 1e-6}).passed);
  EXPECT_EQ(out.gate.copy().to_floats(), std::vector<float>(8, 0.0F));
  EXPECT_EQ(norm.extra_repr(), "4, eps=1e-06, gemma_mode=false");
}

TEST_F(ModuleTest, QuantizedShardsOfDifferentTypesStayApart) {
  FusedColumnLinear fused(32, {{"a", 2}, {"b", 3}});
  Tensor quantized = Tensor::zeros({2, 32}, DType::kQ8_0);  // zeros with any scale
  fused.find_parameter("weight")->load(quantized, "a");
  fused.find_parameter("weight")->load(noise({3, 32}, 1), "b");
  fused.finalize({pool_});
  const Tensor x = noise({2, 32}, 2);
  const Tensor out = fused.forward(stream_, x);
  Linear only(32, 3);
  only.find_parameter("weight")->load(noise({3, 32}, 1));
  only.finalize({pool_});
  const std::vector<Tensor> parts = fused.split(out);
  EXPECT_EQ(parts[0].copy().to_floats(), std::vector<float>(4, 0.0F));
  EXPECT_EQ(parts[1].copy().to_floats(), only.forward(stream_, x).to_floats());
}

TEST_F(ModuleTest, TiedHeadsReadTheTable) {
  Embedding table(6, 4);
  table.find_parameter("weight")->load(noise({6, 4}, 1));
  table.finalize({pool_});
  Linear head(4, 6);
  head.tie_weight(table.weight(), {pool_});
  head.finalize({pool_});
  const Tensor ids = Tensor::from(std::vector<int64_t>{5, 9, 0}, {3});
  const Tensor rows = table.forward(stream_, ids, DType::kF32);
  EXPECT_EQ(rows.select(0, 1).to_floats(), std::vector<float>(4, 0.0F));  // no such row
  EXPECT_EQ(rows.select(0, 0).to_floats(), table.weight().select(0, 5).to_floats());
  const Tensor logits = head.forward(stream_, rows);
  float dot = 0.0F;
  for (const float value : table.weight().select(0, 5).to_floats()) {
    dot += value * value;
  }
  EXPECT_NEAR(logits.to_floats()[5], dot, 1e-5F);
}

// A router that reads and returns state.
class CountingRouter : public Router {
 public:
  Output forward(Stream& stream, const Tensor& x, const Tensor& state) const override {
    Output out;
    out.routing_weights = stream.empty({x.dim(0), 1}, DType::kF32);
    ops::fill(stream, 1.0F, out.routing_weights);
    out.selected_experts =
        Tensor::from(std::vector<int32_t>(static_cast<size_t>(x.dim(0)), 1), {x.dim(0), 1});
    out.router_states_next = stream.empty(state.shape(), DType::kF32);
    ops::affine(stream, state, 1.0F, 1.0F, out.router_states_next);
    return out;
  }
};

TEST_F(ModuleTest, RouterStatesPassThrough) {
  const MoeConfig config{
      .hidden_size = 4, .num_experts = 2, .num_experts_per_tok = 1, .moe_intermediate_size = 3};
  SparseMoeBlock block(config, std::make_unique<CountingRouter>());
  SparseMoeBlock stateless(config);
  fill(block);
  fill(stateless);
  Tensor next;
  block.forward(stream_, noise({2, 4}, 1), Tensor::from(std::vector<float>{41}, {1}), &next);
  EXPECT_EQ(next.to_floats(), std::vector<float>{42});
  stateless.forward(stream_, noise({2, 4}, 1), Tensor(), &next);
  EXPECT_FALSE(next.defined());
}

TEST_F(ModuleTest, ExpertBlocksReplayBitEqual) {
  const MoeConfig config{
      .hidden_size = 8, .num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 5};
  SparseMoeBlockWithSharedExpert block(config, std::make_unique<GatedMLP>(8, 6));
  fill(block);
  Tensor x = noise({5, 8}, 1);
  std::unique_ptr<CapturedGraph> graph;  // owns what `captured` looks at
  stream_.begin_capture();
  const Tensor captured = block.forward(stream_, x);
  graph = stream_.end_capture();
  const Tensor other = noise({5, 8}, 2);
  ops::copy(stream_, other, x);
  graph->replay();
  EXPECT_EQ(captured.to_floats(), block.forward(stream_, other).to_floats());
}

TEST_F(ModuleTest, DispatchEqualsTheBlock) {
  ExpertWeights experts({.hidden_size = 8, .num_experts = 3, .moe_intermediate_size = 4});
  const Tensor gate_up = noise({3, 8, 8}, 1);
  const Tensor down = noise({3, 8, 4}, 2);
  experts.find_parameter("gate_up_proj")->load(gate_up);
  experts.find_parameter("down_proj")->load(down);
  experts.finalize({pool_});
  const Tensor x = noise({4, 8}, 3);
  const Tensor ids = Tensor::from(std::vector<int32_t>{2, 0, 0, 2, 2, 0, 0, 2}, {4, 2});
  const Tensor weights = noise({4, 2}, 5);
  const Tensor want = dispatch_experts_fused(stream_, {x, gate_up, down, 3, ids, weights});
  const Tensor got = experts.forward(stream_, x, weights, ids);
  const Comparison result = compare(got, want, {1e-5, 1e-5});
  EXPECT_TRUE(result.passed) << result.to_string();
}

}  // namespace
}  // namespace mstar
