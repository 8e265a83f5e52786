#include "mstar/components/parallel/moe.h"

#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/gating.h"

namespace mstar {

namespace {

std::unique_ptr<Router> router_or_default(std::unique_ptr<Router> router, const MoeConfig& config) {
  if (router != nullptr) {
    return router;
  }
  return std::make_unique<TopKRouter>(
      config.hidden_size, config.num_experts, config.num_experts_per_tok, config.norm_topk_prob);
}

ExpertWeights::Config experts_of(const MoeConfig& config, const CommGroup& comm) {
  return {.hidden_size = config.hidden_size,
          .num_experts = config.num_experts,
          .moe_intermediate_size = config.moe_intermediate_size,
          .tp_rank = comm.rank(),
          .tp_size = comm.world_size()};
}

// This rank's routed sum; rows [tokens, hidden_size].
Tensor route_rows(Stream& stream,
                  const Router& gate,
                  const ExpertWeights& experts,
                  const Tensor& rows,
                  const Tensor& router_states,
                  Tensor* router_states_next) {
  const Router::Output routed = gate.forward(stream, rows, router_states);
  if (router_states_next != nullptr) {
    *router_states_next = routed.router_states_next;
  }
  return experts.forward(stream, rows, routed.routing_weights, routed.selected_experts);
}

void add_residual(Stream& stream, const Tensor& residual, Tensor& out) {
  if (residual.defined()) {
    ops::add(stream, out, residual, out);
  }
}

}  // namespace

ParallelSparseMoeBlock::ParallelSparseMoeBlock(const MoeConfig& config,
                                               std::unique_ptr<Router> router,
                                               CommGroup& comm_group)
    : comm_(comm_group),
      gate_(router_or_default(std::move(router), config)),
      experts_(experts_of(config, comm_group)) {
  add_module("gate", *gate_);
  add_module("experts", experts_);
}

Tensor ParallelSparseMoeBlock::forward_partial(Stream& stream,
                                               const Tensor& x,
                                               const Tensor& router_states,
                                               Tensor* router_states_next) const {
  return route_rows(stream, *gate_, experts_, x, router_states, router_states_next);
}

Tensor ParallelSparseMoeBlock::forward(Stream& stream,
                                       const Tensor& x,
                                       const Tensor& router_states,
                                       Tensor* router_states_next) const {
  Tensor out = forward_partial(stream, x.as_rows(), router_states, router_states_next);
  comm_.all_reduce(stream, out);
  return out.view(x.shape());
}

Tensor ParallelSparseMoeBlock::forward(Stream& stream,
                                       const Tensor& x,
                                       const Tensor& residual) const {
  Tensor out = forward(stream, x, Tensor(), nullptr);
  add_residual(stream, residual, out);
  return out;
}

ParallelSparseMoeBlockWithSharedExpert::ParallelSparseMoeBlockWithSharedExpert(
    const MoeConfig& config,
    std::unique_ptr<FeedForward> shared_expert,
    std::unique_ptr<Router> router,
    CommGroup& comm_group)
    : comm_(comm_group),
      gate_(router_or_default(std::move(router), config)),
      experts_(experts_of(config, comm_group)),
      shared_expert_(std::move(shared_expert)),
      shared_expert_gate_(config.hidden_size, 1) {
  add_module("gate", *gate_);
  add_module("experts", experts_);
  add_module("shared_expert", *shared_expert_);
  add_module("shared_expert_gate", shared_expert_gate_);
}

Tensor ParallelSparseMoeBlockWithSharedExpert::forward_partial(Stream& stream,
                                                               const Tensor& x,
                                                               const Tensor& router_states,
                                                               Tensor* router_states_next) const {
  return route_rows(stream, *gate_, experts_, x, router_states, router_states_next);
}

Tensor ParallelSparseMoeBlockWithSharedExpert::forward(Stream& stream,
                                                       const Tensor& x,
                                                       const Tensor& router_states,
                                                       Tensor* router_states_next) const {
  const Tensor rows = x.as_rows();
  Tensor out = forward_partial(stream, rows, router_states, router_states_next);
  comm_.all_reduce(stream, out);
  const Tensor shared = shared_expert_->forward(stream, rows);
  const Tensor gate = linear_rows(stream, rows, shared_expert_gate_.weight(), {}, DType::kF32);
  ops::add_sigmoid_gated(stream, out, gate, shared, out);
  return out.view(x.shape());
}

Tensor ParallelSparseMoeBlockWithSharedExpert::forward(Stream& stream,
                                                       const Tensor& x,
                                                       const Tensor& residual) const {
  Tensor out = forward(stream, x, Tensor(), nullptr);
  add_residual(stream, residual, out);
  return out;
}

}  // namespace mstar
