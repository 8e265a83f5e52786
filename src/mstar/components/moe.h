#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mstar/components/linear.h"
#include "mstar/components/mlp.h"

namespace mstar {

// Chooses experts for tokens. The contract of all routers: a router may carry state from layer to
// layer; a stateless one ignores what comes in and returns none. Blocks hand the state through
// when asked.
class Router : public Module {
 public:
  struct Output {
    Tensor routing_weights;     // [tokens, k] f32
    Tensor selected_experts;    // [tokens, k] i32
    Tensor router_states_next;  // undefined: no state
  };

  // hidden_states [tokens, hidden_size]; router_states as this router returns them, or undefined.
  virtual Output forward(Stream& stream,
                         const Tensor& hidden_states,
                         const Tensor& router_states = {}) const = 0;
};

// Softmax in f32 over all experts, then the k largest, renormalized to sum 1 when asked. Checkpoint
// name: weight [num_experts, hidden_size].
class TopKRouter : public Router {
 public:
  TopKRouter(int64_t hidden_size,
             int64_t num_experts,
             int64_t num_experts_per_tok,
             bool norm_topk_prob = true);

  Output forward(Stream& stream,
                 const Tensor& hidden_states,
                 const Tensor& router_states = {}) const override;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  int64_t num_experts_per_tok_;
  bool norm_topk_prob_;
  Parameter* parameter_;
  PackedWeight weight_;
};

// The matrices of all experts, one packed weight per expert and projection, and the part of their
// intermediate dim that a rank keeps. Checkpoint names: gate_up_proj [experts, 2 intermediate,
// hidden] (gate rows first) and down_proj [experts, hidden, intermediate]; or one tensor per expert
// with shard ids "gate:N", "up:N" and "down:N" (stacked_rules()).
class ExpertWeights : public Module {
 public:
  struct Config {
    int64_t hidden_size = 0;
    int64_t num_experts = 0;
    int64_t moe_intermediate_size = 0;  // of all ranks
    int tp_rank = 0;
    int tp_size = 1;
  };

  explicit ExpertWeights(const Config& config);

  // Sum over choices of weight * down(silu(gate) * up), this rank's part of it.
  //   x [tokens, hidden_size], routing_weights, selected_experts [tokens, k] -> [tokens, hidden]
  Tensor forward(Stream& stream,
                 const Tensor& x,
                 const Tensor& routing_weights,
                 const Tensor& selected_experts) const;

  // For checkpoints with one tensor per expert, under a module named "experts".
  static std::vector<StackedParamRule> stacked_rules();

  // For tests: what this rank holds of one projection, [experts, rows, columns], before
  // finalize().
  Tensor loaded_gate_up() const;
  Tensor loaded_down() const;

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  Config config_;
  Parameter* gate_up_parameter_;
  Parameter* down_parameter_;
  std::vector<PackedWeight> gate_up_proj_;  // per expert [2 local intermediate, hidden]
  std::vector<PackedWeight> down_proj_;     // per expert [hidden, local intermediate]
};

// Sizes of a sparse block; `router` null means TopKRouter.
struct MoeConfig {
  int64_t hidden_size = 0;
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = true;
};

// Mixture of experts without a shared one. Checkpoint names: gate.weight, experts.gate_up_proj,
// experts.down_proj.
class SparseMoeBlock : public FeedForward {
 public:
  explicit SparseMoeBlock(const MoeConfig& config, std::unique_ptr<Router> router = nullptr);

  // x [..., hidden_size] -> the same shape and type.
  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;

  // The same with the router's state handed through: `router_states` goes in, what the router
  // returns goes to *router_states_next (undefined for a stateless one).
  Tensor forward(Stream& stream,
                 const Tensor& x,
                 const Tensor& router_states,
                 Tensor* router_states_next) const;

 private:
  std::unique_ptr<Router> gate_;
  ExpertWeights experts_;
};

// The same with an expert that every token visits:
//   routed(x) + sigmoid(shared_expert_gate(x)) * shared_expert(x)
// Checkpoint names: as above, shared_expert, shared_expert_gate.weight [1, hidden_size].
class SparseMoeBlockWithSharedExpert : public FeedForward {
 public:
  // config.norm_topk_prob is false in the models that have this block.
  SparseMoeBlockWithSharedExpert(const MoeConfig& config,
                                 std::unique_ptr<FeedForward> shared_expert,
                                 std::unique_ptr<Router> router = nullptr);

  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;
  Tensor forward(Stream& stream,
                 const Tensor& x,
                 const Tensor& router_states,
                 Tensor* router_states_next) const;

 private:
  std::unique_ptr<Router> gate_;
  ExpertWeights experts_;
  std::unique_ptr<FeedForward> shared_expert_;
  Linear shared_expert_gate_;
};

// Slow and plain: expert by expert over unpacked weights, adding into the result in its own type,
// experts in rising order. Eager only: it looks at the chosen ids.
//   hidden_states [tokens, hidden], gate_up_proj [experts, 2 intermediate, hidden], down_proj
//   [experts, hidden, intermediate], selected_experts [tokens, k] i32 or i64, routing_weights
//   [tokens, k] f32 -> [tokens, hidden] of hidden_states' type
struct DispatchExperts {
  Tensor hidden_states;
  Tensor gate_up_proj;
  Tensor down_proj;
  int64_t num_experts = 0;
  Tensor selected_experts;
  Tensor routing_weights;
};

Tensor dispatch_experts_fused(Stream& stream, const DispatchExperts& args);

}  // namespace mstar
