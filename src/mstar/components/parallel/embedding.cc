#include "mstar/components/parallel/embedding.h"

#include "mstar/base/check.h"
#include "mstar/components/parallel/linear.h"
#include "mstar/kernels/ops/embedding.h"
#include "mstar/kernels/ops/gating.h"

namespace mstar {

VocabParallelEmbedding::VocabParallelEmbedding(CommGroup& comm,
                                               int64_t num_embeddings,
                                               int64_t embedding_dim,
                                               float scale)
    : comm_(comm),
      local_rows_(
          divide(num_embeddings, comm.world_size(), "VocabParallelEmbedding", "num_embeddings")),
      embedding_dim_(embedding_dim),
      scale_(scale) {
  ShardSpec spec;
  spec.shape = {num_embeddings, embedding_dim};
  spec.begin = local_rows_ * comm.rank();
  spec.size = local_rows_;
  parameter_ =
      &add_parameter("weight", {spec}, {num_embeddings, embedding_dim}, ParameterKind::kMatrix);
}

void VocabParallelEmbedding::pack(const FinalizeOptions& options) {
  MSTAR_CHECK(parameter_->is_complete(), "weight was not loaded");
  weight_ = parameter_->join();
  if (is_quantized(weight_.dtype())) {
    weight_ = PackedWeight::pack(weight_, options.pool).unpack();
  }
  parameter_->release();
}

Tensor VocabParallelEmbedding::forward_partial(Stream& stream,
                                               const Tensor& ids,
                                               DType dtype) const {
  const Tensor flat = ids.view({ids.num_elements()});
  Tensor local = flat;
  if (comm_.rank() > 0) {
    local = stream.empty(flat.shape(), flat.dtype());
    ops::shift_ids(stream, flat, local_rows_ * comm_.rank(), local);
  }
  Shape shape = ids.shape();
  shape.push_back(embedding_dim_);
  Tensor out = stream.empty(shape, dtype);
  Tensor rows = out.view({-1, embedding_dim_});
  ops::embedding(stream, weight_, local, scale_, rows);
  return out;
}

Tensor VocabParallelEmbedding::forward(Stream& stream, const Tensor& ids, DType dtype) const {
  Tensor out = forward_partial(stream, ids, dtype);
  comm_.all_reduce(stream, out);
  return out;
}

}  // namespace mstar
