#pragma once

#include <cstdint>
#include <vector>

#include "mstar/components/mlp.h"
#include "mstar/components/parallel/linear.h"

namespace mstar {

struct ParallelGatedMlpConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  ActivationFunction activation = Activation::kSilu;
  bool bias = false;
  bool reduce_results = true;  // sum over ranks; else each keeps its partial result
};

// GatedMLP with the intermediate features split over ranks and one sum at the end. gate and up are
// one layer: shard ids "0" and "1" (FusedGatedMLP::stacked_rules()).
class ParallelGatedMLP : public FeedForward {
 public:
  ParallelGatedMLP(CommGroup& comm, const ParallelGatedMlpConfig& config);

  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;

  // Parts, for tests.
  const MergedColumnParallelLinear& gate_up_proj() const { return gate_up_proj_; }

  const RowParallelLinear& down_proj() const { return down_proj_; }

 private:
  MergedColumnParallelLinear gate_up_proj_;
  RowParallelLinear down_proj_;
  ActivationFunction activation_;
};

// The same with gate and up as layers of their own, whose names match the checkpoint.
class ParallelGatedMLPUnfused : public FeedForward {
 public:
  ParallelGatedMLPUnfused(CommGroup& comm, const ParallelGatedMlpConfig& config);

  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const override;

 private:
  ColumnParallelLinear gate_proj_;
  ColumnParallelLinear up_proj_;
  RowParallelLinear down_proj_;
  ActivationFunction activation_;
};

}  // namespace mstar
