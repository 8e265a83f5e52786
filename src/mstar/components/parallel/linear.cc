#include "mstar/components/parallel/linear.h"

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar {

int64_t divide(int64_t value, int parts, const char* where, const char* what) {
  if (value % parts != 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        str_cat("[", where, "] ", what, " ", value, " is no multiple of ", parts, " ranks"));
  }
  return value / parts;
}

void ColumnParallelBase::build(int64_t in_features, std::vector<ShardSpec> shards) {
  std::vector<ShardSpec> biases;
  int64_t whole = 0;
  for (ShardSpec& spec : shards) {
    spec.stack_row = whole;
    whole += spec.shape[0];
    local_out_features_ += spec.size;
    ShardSpec bias = spec;
    bias.shape = {spec.shape[0]};
    biases.push_back(std::move(bias));
    spec.shape = {spec.shape[0], in_features};
  }
  weight_parameter_ =
      &add_parameter("weight", std::move(shards), {whole, in_features}, ParameterKind::kMatrix);
  if (options_.bias) {
    bias_parameter_ = &add_parameter("bias", std::move(biases), {whole}, ParameterKind::kFloating);
  }
}

void ColumnParallelBase::pack(const FinalizeOptions& options) {
  const int num_shards = static_cast<int>(weight_parameter_->shards().size());
  MSTAR_CHECK(weight_parameter_->is_complete(), "weight was not loaded");
  if (weight_parameter_->have_one_dtype(0, num_shards)) {
    weights_.push_back(take_packed(*weight_parameter_, options));
  } else {
    for (const Tensor& piece : weight_parameter_->pieces()) {
      weights_.push_back(
          PackedWeight::pack(piece, options.pool, options.weight_format, options.activations));
    }
    weight_parameter_->release();
  }
  if (bias_parameter_ != nullptr) {
    MSTAR_CHECK(bias_parameter_->is_complete(), "bias was not loaded");
    bias_ = take_vector(*bias_parameter_);
  }
}

Tensor ColumnParallelBase::forward(Stream& stream, const Tensor& x) const {
  Shape shape = x.shape();
  shape[-1] = local_out_features_;
  Tensor local = stream.empty(shape, x.dtype());
  const Tensor rows = x.as_rows();
  int64_t begin = 0;
  for (const PackedWeight& weight : weights_) {
    const int64_t end = begin + weight.out_features();
    Tensor part = local.as_rows().slice(1, begin, end);
    Epilogue epilogue;
    if (bias_.defined() && !options_.skip_bias_add) {
      epilogue.bias = bias_.slice(0, begin, end);
    }
    ops::linear(stream, rows, weight, epilogue, part);
    begin = end;
  }
  if (!options_.gather_output || comm_.world_size() == 1) {
    return local;
  }
  shape[-1] = local_out_features_ * comm_.world_size();
  Tensor out = stream.empty(shape, x.dtype());
  comm_.all_gather(stream, local, -1, out);
  return out;
}

ColumnParallelLinear::ColumnParallelLinear(CommGroup& comm,
                                           int64_t in_features,
                                           int64_t out_features,
                                           ColumnParallelOptions options)
    : ColumnParallelBase(comm, options) {
  ShardSpec spec;
  spec.shape = {out_features};
  spec.size = divide(out_features, comm.world_size(), "ColumnParallelLinear", "out_features");
  spec.begin = spec.size * comm.rank();
  build(in_features, {spec});
}

MergedColumnParallelLinear::MergedColumnParallelLinear(CommGroup& comm,
                                                       int64_t in_features,
                                                       std::vector<int64_t> output_sizes,
                                                       ColumnParallelOptions options)
    : ColumnParallelBase(comm, options) {
  if (options.gather_output && comm.world_size() > 1 && output_sizes.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "[MergedColumnParallelLinear] gathered parts would be interleaved by rank; gather "
                "the split outputs instead");
  }
  std::vector<ShardSpec> shards;
  for (size_t index = 0; index < output_sizes.size(); ++index) {
    ShardSpec spec;
    spec.id = str_cat(index);
    spec.shape = {output_sizes[index]};
    spec.size =
        divide(output_sizes[index], comm.world_size(), "MergedColumnParallelLinear", "output size");
    spec.begin = spec.size * comm.rank();
    shards.push_back(std::move(spec));
  }
  build(in_features, std::move(shards));
}

QKVParallelLinear::QKVParallelLinear(CommGroup& comm, const Config& config)
    : ColumnParallelBase(comm, {.bias = config.bias}) {
  const int world = comm.world_size();
  local_num_heads_ = divide(config.num_heads, world, "QKVParallelLinear", "num_heads");
  if (world > config.num_kv_heads) {
    num_kv_replicas_ = world / static_cast<int>(config.num_kv_heads);
    if (world % config.num_kv_heads != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[QKVParallelLinear] ",
                          world,
                          " ranks are no multiple of num_kv_heads ",
                          config.num_kv_heads));
    }
    local_num_kv_heads_ = 1;
  } else {
    local_num_kv_heads_ = divide(config.num_kv_heads, world, "QKVParallelLinear", "num_kv_heads");
  }
  const int64_t v_head_dim = config.v_head_dim == 0 ? config.head_dim : config.v_head_dim;
  const auto shard = [&](const char* id, int64_t heads, int64_t local_heads, int64_t dim) {
    ShardSpec spec;
    spec.id = id;
    spec.shape = {heads * dim};
    spec.size = local_heads * dim;
    return spec;
  };
  ShardSpec q = shard("q", config.num_heads, local_num_heads_, config.head_dim);
  ShardSpec k = shard("k", config.num_kv_heads, local_num_kv_heads_, config.head_dim);
  ShardSpec v = shard("v", config.num_kv_heads, local_num_kv_heads_, v_head_dim);
  q.begin = q.size * comm.rank();
  k.begin = k.size * (comm.rank() / num_kv_replicas_);
  v.begin = v.size * (comm.rank() / num_kv_replicas_);
  build(config.hidden_size, {q, k, v});
}

RowParallelLinear::RowParallelLinear(CommGroup& comm,
                                     int64_t in_features,
                                     int64_t out_features,
                                     RowParallelOptions options)
    : comm_(comm),
      options_(options),
      local_in_features_(
          divide(in_features, comm.world_size(), "RowParallelLinear", "in_features")) {
  if (!options.reduce_results && options.bias && !options.skip_bias_add) {
    throw Error(ErrorCode::kInvalidArgument,
                "[RowParallelLinear] a bias cannot be added without reduce_results: every rank "
                "would add it; set skip_bias_add or reduce_results");
  }
  ShardSpec spec;
  spec.shape = {out_features, in_features};
  spec.dim = 1;
  spec.begin = local_in_features_ * comm.rank();
  spec.size = local_in_features_;
  weight_parameter_ =
      &add_parameter("weight", {spec}, {out_features, in_features}, ParameterKind::kMatrix);
  if (options.bias) {
    bias_parameter_ = &add_parameter("bias", {out_features}, ParameterKind::kFloating);
  }
}

void RowParallelLinear::pack(const FinalizeOptions& options) {
  weight_ = take_packed(*weight_parameter_, options);
  if (bias_parameter_ != nullptr) {
    MSTAR_CHECK(bias_parameter_->is_complete(), "bias was not loaded");
    bias_ = take_vector(*bias_parameter_);
  }
}

Tensor RowParallelLinear::forward(Stream& stream, const Tensor& x, const Tensor& residual) const {
  Tensor local = x.as_rows();
  if (!options_.input_is_parallel) {
    const int64_t begin = local_in_features_ * comm_.rank();
    local = local.slice(1, begin, begin + local_in_features_);
  }
  const bool alone = comm_.world_size() == 1;
  Epilogue epilogue;
  if (comm_.rank() == 0 && !options_.skip_bias_add) {
    epilogue.bias = bias_;
  }
  if (alone && residual.defined()) {
    epilogue.residual = residual.as_rows();
  }
  Shape shape = x.shape();
  shape[-1] = weight_.out_features();
  Tensor out = stream.empty(shape, x.dtype());
  Tensor out_rows = out.as_rows();
  ops::linear(stream, local, weight_, epilogue, out_rows);
  if (!alone) {
    if (options_.reduce_results) {
      comm_.all_reduce(stream, out);
    }
    if (residual.defined()) {
      ops::add(stream, out, residual, out);
    }
  }
  return out;
}

}  // namespace mstar
