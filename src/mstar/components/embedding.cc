#include "mstar/components/embedding.h"

#include "mstar/base/check.h"
#include "mstar/kernels/ops/embedding.h"

namespace mstar {

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, float scale)
    : parameter_(&add_parameter("weight", {num_embeddings, embedding_dim}, ParameterKind::kMatrix)),
      embedding_dim_(embedding_dim),
      scale_(scale) {}

void Embedding::pack(const FinalizeOptions&) {
  MSTAR_CHECK(parameter_->is_complete(), "weight was not loaded");
  weight_ = parameter_->join();
  parameter_->release();
}

Tensor Embedding::forward(Stream& stream, const Tensor& ids, DType dtype) const {
  Shape shape = ids.shape();
  shape.push_back(embedding_dim_);
  Tensor out = stream.empty(shape, dtype);
  Tensor rows = out.view({-1, embedding_dim_});
  ops::embedding(stream, weight_, ids.view({ids.num_elements()}), scale_, rows);
  return out;
}

}  // namespace mstar
