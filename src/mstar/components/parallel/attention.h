#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mstar/components/attention.h"
#include "mstar/components/parallel/linear.h"

namespace mstar {

// Attention with heads split over ranks: q, k and v are one column-parallel layer (qkv_proj, shard
// ids "q", "k", "v"), the output is row-parallel. Its KV resource holds local_num_kv_heads().
// Checkpoint names: qkv_proj through stacked_rules(), o_proj, q_norm, k_norm.
class ParallelAttention : public SelfAttention {
 public:
  // config.qk_norm norms are whole on every rank: they work per head.
  ParallelAttention(CommGroup& comm, const Attention::Config& config, bool reduce_results = true);

  void bind_resources(const ResourceMap& resources) override;

  Tensor forward(Stream& stream,
                 const Tensor& hidden_states,
                 const AttentionContext& context,
                 const Tensor& residual = {}) const override;

  int64_t local_num_heads() const { return qkv_proj_.local_num_heads(); }

  int64_t local_num_kv_heads() const { return qkv_proj_.local_num_kv_heads(); }

  static std::vector<StackedParamRule> stacked_rules();

  // Parts, for tests.
  const QKVParallelLinear& qkv_proj() const { return qkv_proj_; }

  const RowParallelLinear& o_proj() const { return o_proj_; }

 private:
  Attention::Config config_;
  QKVParallelLinear qkv_proj_;
  RowParallelLinear o_proj_;
  std::optional<RMSNorm> q_norm_;
  std::optional<RMSNorm> k_norm_;
  AttentionBinding binding_;
};

}  // namespace mstar
