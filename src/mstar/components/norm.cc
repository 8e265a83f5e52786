#include "mstar/components/norm.h"

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"

namespace mstar {

RMSNorm::RMSNorm(int64_t hidden_size, float eps, bool gemma_mode, RmsNormRounding rounding)
    : hidden_size_(hidden_size),
      options_{eps, gemma_mode, rounding},
      parameter_(&add_parameter("weight", {hidden_size}, ParameterKind::kFloating)) {}

void RMSNorm::pack(const FinalizeOptions&) {
  weight_ = take_vector(*parameter_);
  if (!weight_.defined()) {
    const float initial = options_.gemma_mode ? 0.0F : 1.0F;
    const std::vector<float> values(static_cast<size_t>(hidden_size_), initial);
    weight_ = Tensor::from(values, {hidden_size_});
  }
}

Tensor RMSNorm::forward(Stream& stream, const Tensor& x) const {
  Tensor out = stream.empty(x.shape(), x.dtype());
  ops::rms_norm(stream, x, weight_, options_, out);
  return out;
}

void RMSNorm::forward_inplace(Stream& stream, Tensor& x) const {
  ops::rms_norm(stream, x, weight_, options_, x);
}

Tensor RMSNorm::forward_add(Stream& stream, const Tensor& x, Tensor& residual) const {
  Tensor out = stream.empty(x.shape(), x.dtype());
  ops::add_rms_norm(stream, x, residual, weight_, options_, out);
  return out;
}

std::string RMSNorm::extra_repr() const {
  return str_cat(hidden_size_, ", eps=", options_.eps, ", gemma_mode=", options_.gemma_mode);
}

LayerNorm::LayerNorm(int64_t hidden_size, float eps, bool elementwise_affine, bool bias)
    : eps_(eps) {
  if (elementwise_affine) {
    weight_parameter_ = &add_parameter("weight", {hidden_size}, ParameterKind::kFloating);
    if (bias) {
      bias_parameter_ = &add_parameter("bias", {hidden_size}, ParameterKind::kFloating);
    }
  }
}

void LayerNorm::pack(const FinalizeOptions&) {
  if (weight_parameter_ != nullptr) {
    weight_ = take_vector(*weight_parameter_);
  }
  if (bias_parameter_ != nullptr) {
    bias_ = take_vector(*bias_parameter_);
  }
}

Tensor LayerNorm::forward(Stream& stream, const Tensor& x) const {
  Tensor out = stream.empty(x.shape(), x.dtype());
  ops::layer_norm(stream, x, weight_, bias_, eps_, out);
  return out;
}

AdaRMSNorm::AdaRMSNorm(int64_t hidden_size, int64_t cond_dim, float eps)
    : hidden_size_(hidden_size), eps_(eps), dense_(cond_dim, 3 * hidden_size, true) {
  add_module("dense", dense_);
}

void AdaRMSNorm::ZeroInitLinear::pack(const FinalizeOptions& options) {
  if (!weight_parameter().is_complete()) {
    weight_parameter().load(Tensor::zeros({out_features(), in_features()}, DType::kF32));
  }
  if (!bias_parameter()->is_complete()) {
    bias_parameter()->load(Tensor::zeros({out_features()}, DType::kF32));
  }
  Linear::pack(options);
}

AdaRMSNorm::Output AdaRMSNorm::forward(Stream& stream, const Tensor& x, const Tensor& cond) const {
  MSTAR_CHECK(x.num_dims() == 2 && cond.num_dims() == 2 &&
                  (cond.dim(0) == 0 ? x.dim(0) == 0 : x.dim(0) % cond.dim(0) == 0),
              x.to_string(),
              " with ",
              cond.to_string());
  const Tensor modulation = dense_.forward(stream, cond);
  const Tensor scale = modulation.slice(1, 0, hidden_size_);
  const Tensor shift = modulation.slice(1, hidden_size_, 2 * hidden_size_);
  Output out;
  out.gate = modulation.slice(1, 2 * hidden_size_, 3 * hidden_size_);
  out.normed = stream.empty(x.shape(), x.dtype());
  ops::ada_rms_norm(stream, x, scale, shift, eps_, out.normed);
  return out;
}

}  // namespace mstar
