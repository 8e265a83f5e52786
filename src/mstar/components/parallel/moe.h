#pragma once

#include <memory>

#include "mstar/collectives/comm_group.h"
#include "mstar/components/moe.h"

namespace mstar {

// SparseMoeBlock with every expert's intermediate features split over ranks. The router is whole on
// every rank. Each rank sums over its choices first, then one all-reduce: sums commute, and it
// moves k times less than reducing every choice. With one rank it is SparseMoeBlock.
class ParallelSparseMoeBlock : public FeedForward {
 public:
  ParallelSparseMoeBlock(const MoeConfig& config,
                         std::unique_ptr<Router> router = nullptr,
                         CommGroup& comm_group = single_rank_group());

  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;
  Tensor forward(Stream& stream,
                 const Tensor& x,
                 const Tensor& router_states,
                 Tensor* router_states_next) const;

  // The routed sum of this rank alone: x [tokens, hidden_size].
  Tensor forward_partial(Stream& stream,
                         const Tensor& x,
                         const Tensor& router_states = {},
                         Tensor* router_states_next = nullptr) const;

  const ExpertWeights& experts() const { return experts_; }  // for tests

 private:
  CommGroup& comm_;
  std::unique_ptr<Router> gate_;
  ExpertWeights experts_;
};

// The same with a shared expert behind a sigmoid gate. `shared_expert` should be a ParallelGatedMLP
// over the same group: it sums over ranks itself.
class ParallelSparseMoeBlockWithSharedExpert : public FeedForward {
 public:
  ParallelSparseMoeBlockWithSharedExpert(const MoeConfig& config,
                                         std::unique_ptr<FeedForward> shared_expert,
                                         std::unique_ptr<Router> router = nullptr,
                                         CommGroup& comm_group = single_rank_group());

  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;
  Tensor forward(Stream& stream,
                 const Tensor& x,
                 const Tensor& router_states,
                 Tensor* router_states_next) const;

  Tensor forward_partial(Stream& stream,
                         const Tensor& x,
                         const Tensor& router_states = {},
                         Tensor* router_states_next = nullptr) const;

  const ExpertWeights& experts() const { return experts_; }  // for tests

 private:
  CommGroup& comm_;
  std::unique_ptr<Router> gate_;
  ExpertWeights experts_;
  std::unique_ptr<FeedForward> shared_expert_;
  Linear shared_expert_gate_;
};

}  // namespace mstar
