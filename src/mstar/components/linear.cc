#include "mstar/components/linear.h"

#include "mstar/base/check.h"

namespace mstar {

Tensor linear_rows(Stream& stream,
                   const Tensor& x,
                   const PackedWeight& weight,
                   const Epilogue& epilogue,
                   DType out_dtype) {
  Shape shape = x.shape();
  shape[-1] = weight.out_features();
  Tensor out = stream.empty(shape, out_dtype);
  Tensor out_rows = out.as_rows();
  Epilogue rows = epilogue;
  if (rows.residual.defined()) {
    rows.residual = rows.residual.as_rows();
  }
  ops::linear(stream, x.as_rows(), weight, rows, out_rows);
  return out;
}

Linear::Linear(int64_t in_features, int64_t out_features, bool bias)
    : in_features_(in_features), out_features_(out_features) {
  weight_parameter_ = &add_parameter("weight", {out_features, in_features}, ParameterKind::kMatrix);
  if (bias) {
    bias_parameter_ = &add_parameter("bias", {out_features}, ParameterKind::kFloating);
  }
}

void Linear::tie_weight(const Tensor& table, const FinalizeOptions& options) {
  MSTAR_CHECK(table.shape() == (Shape{out_features_, in_features_}), table.to_string());
  weight_ = PackedWeight::pack(table, options.pool, options.weight_format, options.activations);
  give_up_weight();
}

void Linear::give_up_weight() {
  weight_parameter_->release();
  gave_up_weight_ = true;
}

void Linear::pack(const FinalizeOptions& options) {
  if (!gave_up_weight_) {
    weight_ = take_packed(*weight_parameter_, options);
  }
  if (bias_parameter_ != nullptr) {
    MSTAR_CHECK(bias_parameter_->is_complete(), "bias was not loaded");
    bias_ = take_vector(*bias_parameter_);
  }
}

Tensor Linear::forward(Stream& stream, const Tensor& x, const Epilogue& extra) const {
  Epilogue epilogue = extra;
  epilogue.bias = bias_;
  return linear_rows(stream, x, weight_, epilogue, x.dtype());
}

void Linear::forward_into(Stream& stream,
                          const Tensor& x,
                          const Epilogue& extra,
                          Tensor& out) const {
  Epilogue epilogue = extra;
  epilogue.bias = bias_;
  if (epilogue.residual.defined()) {
    epilogue.residual = epilogue.residual.as_rows();
  }
  Tensor out_rows = out.as_rows();
  ops::linear(stream, x.as_rows(), weight_, epilogue, out_rows);
}

FusedColumnLinear::FusedColumnLinear(int64_t input_size, ShardSizes shard_sizes, bool bias)
    : shard_sizes_(std::move(shard_sizes)) {
  std::vector<ShardSpec> weights;
  std::vector<ShardSpec> biases;
  for (const auto& [id, size] : shard_sizes_) {
    ShardSpec spec;
    spec.id = id;
    spec.stack_row = output_size_;
    spec.shape = {size, input_size};
    weights.push_back(spec);
    spec.shape = {size};
    biases.push_back(spec);
    output_size_ += size;
  }
  weight_parameter_ = &add_parameter(
      "weight", std::move(weights), {output_size_, input_size}, ParameterKind::kMatrix);
  if (bias) {
    bias_parameter_ =
        &add_parameter("bias", std::move(biases), {output_size_}, ParameterKind::kFloating);
  }
}

void FusedColumnLinear::pack(const FinalizeOptions& options) {
  const int num_shards = static_cast<int>(shard_sizes_.size());
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

Tensor FusedColumnLinear::forward(Stream& stream, const Tensor& x) const {
  Epilogue epilogue;
  epilogue.bias = bias_;
  if (weights_.size() == 1) {
    return linear_rows(stream, x, weights_.front(), epilogue, x.dtype());
  }
  Shape shape = x.shape();
  shape[-1] = output_size_;
  Tensor out = stream.empty(shape, x.dtype());
  int64_t begin = 0;
  for (const PackedWeight& weight : weights_) {
    const int64_t end = begin + weight.out_features();
    Tensor part = out.as_rows().slice(1, begin, end);
    epilogue.bias = bias_.defined() ? bias_.slice(0, begin, end) : Tensor();
    ops::linear(stream, x.as_rows(), weight, epilogue, part);
    begin = end;
  }
  return out;
}

std::vector<Tensor> FusedColumnLinear::split(const Tensor& out) const {
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const auto& [id, size] : shard_sizes_) {
    parts.push_back(out.slice(out.num_dims() - 1, begin, begin + size));
    begin += size;
  }
  return parts;
}

}  // namespace mstar
