#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/components/module.h"

namespace mstar {

// y = x @ weight^T + bias. Checkpoint names: weight [out_features, in_features], bias
// [out_features].
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias = false);

  // x [..., in_features] f32 or bf16 -> [..., out_features] of the same type. The bias is added
  // here; `extra` may bring an activation, a residual [..., out_features] and alpha.
  Tensor forward(Stream& stream, const Tensor& x, const Epilogue& extra = {}) const;

  // The same into `out`, f32 or bf16, dense rows.
  void forward_into(Stream& stream, const Tensor& x, const Epilogue& extra, Tensor& out) const;

  int64_t in_features() const { return in_features_; }

  int64_t out_features() const { return out_features_; }

  bool has_bias() const { return bias_parameter_ != nullptr; }

  const Tensor& bias() const { return bias_; }

  const PackedWeight& weight() const { return weight_; }

  // A head that shares `table` [out_features, in_features] with an embedding: packs it now; the
  // checkpoint's weight is then not asked for. Call instead of loading, before finalize().
  void tie_weight(const Tensor& table, const FinalizeOptions& options);

  // Parameters while loading; another module may take them over (consolidation).
  Parameter& weight_parameter() { return *weight_parameter_; }

  Parameter* bias_parameter() { return bias_parameter_; }

  // The weight went elsewhere: finalize() leaves this module empty.
  void give_up_weight();

  bool gave_up_weight() const { return gave_up_weight_; }

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  int64_t in_features_;
  int64_t out_features_;
  Parameter* weight_parameter_;
  Parameter* bias_parameter_ = nullptr;
  bool gave_up_weight_ = false;
  PackedWeight weight_;
  Tensor bias_;  // [out_features]
};

// x @ weight^T for x of any leading dims: shapes as Linear::forward. `epilogue` is complete.
Tensor linear_rows(Stream& stream,
                   const Tensor& x,
                   const PackedWeight& weight,
                   const Epilogue& epilogue,
                   DType out_dtype);

// A linear layer whose output is the concatenation of several shards along the features, computed
// as one matrix. `shard_sizes` maps shard ids to output sizes; its order is the layout. Checkpoint
// tensors come one by one with their shard id, or all as one. Shards of different block types are
// kept apart and computed one after the other.
class FusedColumnLinear : public Module {
 public:
  using ShardSizes = std::vector<std::pair<std::string, int64_t>>;

  FusedColumnLinear(int64_t input_size, ShardSizes shard_sizes, bool bias = false);

  // x [..., input_size] -> [..., sum of shard sizes]
  Tensor forward(Stream& stream, const Tensor& x) const;

  // Views of forward()'s result, in the order of the shards.
  std::vector<Tensor> split(const Tensor& out) const;

  const ShardSizes& shard_sizes() const { return shard_sizes_; }

  int64_t output_size() const { return output_size_; }

  // For tests: the fused weight [output_size, input_size] and bias as loaded, before finalize().
  Tensor fused_weight() const { return weight_parameter_->join(); }

  Tensor fused_bias() const { return bias_parameter_->join(); }

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  ShardSizes shard_sizes_;
  int64_t output_size_ = 0;
  Parameter* weight_parameter_;
  Parameter* bias_parameter_ = nullptr;
  std::vector<PackedWeight> weights_;  // one, or one per shard
  Tensor bias_;                        // [output_size]
};

}  // namespace mstar
