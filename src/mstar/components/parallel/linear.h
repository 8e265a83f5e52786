#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mstar/collectives/comm_group.h"
#include "mstar/components/linear.h"

namespace mstar {

// Linear layers whose weights are split over the ranks of a group. Checkpoint names and shapes are
// those of the whole layer; each rank keeps its part while loading. With one rank they communicate
// nothing and equal Linear. Groups must outlive the layers.

struct ColumnParallelOptions {
  bool bias = false;
  bool gather_output = false;  // every rank gets all features, else its own
  bool skip_bias_add = false;  // the caller adds bias() itself
};

// Output features are split: rank r holds rows [r, r + 1) * out / tp. Common part of the layers
// below.
class ColumnParallelBase : public Module {
 public:
  // x [..., in] -> [..., local out], or [..., out] with gather_output.
  Tensor forward(Stream& stream, const Tensor& x) const;

  // This rank's part [local out]; undefined without one.
  const Tensor& bias() const { return bias_; }

  int64_t local_out_features() const { return local_out_features_; }

  // For tests: this rank's part of the weight as loaded, before finalize().
  Tensor loaded_weight() const { return weight_parameter_->join(); }

  Tensor loaded_bias() const { return bias_parameter_->join(); }

  // The comm group that the features are split over.
  CommGroup& comm() const { return comm_; }

 protected:
  ColumnParallelBase(CommGroup& comm, ColumnParallelOptions options)
      : comm_(comm), options_(options) {}

  // `shards` describe the weight's pieces; the bias has the same along its only dim.
  void build(int64_t in_features, std::vector<ShardSpec> shards);

  void pack(const FinalizeOptions& options) override;

 private:
  CommGroup& comm_;
  ColumnParallelOptions options_;
  int64_t local_out_features_ = 0;
  Parameter* weight_parameter_ = nullptr;
  Parameter* bias_parameter_ = nullptr;
  std::vector<PackedWeight> weights_;  // one, or one per shard when their types differ
  Tensor bias_;
};

class ColumnParallelLinear : public ColumnParallelBase {
 public:
  // Throws Error(kInvalidArgument) unless the ranks divide out_features.
  ColumnParallelLinear(CommGroup& comm,
                       int64_t in_features,
                       int64_t out_features,
                       ColumnParallelOptions options = {});
};

// Several column-parallel matrices as one: each is split on its own, so a rank holds
// [part of first, part of second, …]. Shard ids "0", "1", …
class MergedColumnParallelLinear : public ColumnParallelBase {
 public:
  MergedColumnParallelLinear(CommGroup& comm,
                             int64_t in_features,
                             std::vector<int64_t> output_sizes,
                             ColumnParallelOptions options = {});
};

// q, k and v as one: heads are split. With more ranks than kv heads each kv head is held by
// ranks / kv heads neighbouring ranks. Shard ids "q", "k", "v".
class QKVParallelLinear : public ColumnParallelBase {
 public:
  struct Config {
    int64_t hidden_size = 0;
    int64_t head_dim = 0;
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t v_head_dim = 0;  // 0: head_dim
    bool bias = false;
  };

  // Throws Error(kInvalidArgument) when heads do not divide by ranks (nor ranks by kv heads).
  QKVParallelLinear(CommGroup& comm, const Config& config);

  int64_t local_num_heads() const { return local_num_heads_; }

  int64_t local_num_kv_heads() const { return local_num_kv_heads_; }

  // Ranks that hold the same kv head.
  int num_kv_replicas() const { return num_kv_replicas_; }

 private:
  int64_t local_num_heads_ = 0;
  int64_t local_num_kv_heads_ = 0;
  int num_kv_replicas_ = 1;
};

struct RowParallelOptions {
  bool bias = false;
  bool input_is_parallel =
      true;                    // x is this rank's part; else the whole, of which it takes its part
  bool reduce_results = true;  // sum over ranks; else each keeps its partial product
  bool skip_bias_add = false;  // the caller adds bias() itself
};

// Input features are split: rank r holds columns [r, r + 1) * in / tp, and the products are summed
// over ranks. The bias is whole on every rank and added once, by rank 0 before the sum.
class RowParallelLinear : public Module {
 public:
  // Throws Error(kInvalidArgument) unless the ranks divide in_features, and for a bias that nobody
  // could add once (no reduction, not skipped).
  RowParallelLinear(CommGroup& comm,
                    int64_t in_features,
                    int64_t out_features,
                    RowParallelOptions options = {});

  // x [..., local in] (or [..., in]) -> [..., out], plus `residual` [..., out] when given.
  Tensor forward(Stream& stream, const Tensor& x, const Tensor& residual = {}) const;

  const Tensor& bias() const { return bias_; }

  Tensor loaded_weight() const { return weight_parameter_->join(); }

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  CommGroup& comm_;
  RowParallelOptions options_;
  int64_t local_in_features_;
  Parameter* weight_parameter_;
  Parameter* bias_parameter_ = nullptr;
  PackedWeight weight_;
  Tensor bias_;
};

// value / parts; throws Error(kInvalidArgument) "[where] what value is no multiple of parts ranks".
int64_t divide(int64_t value, int parts, const char* where, const char* what);

}  // namespace mstar
