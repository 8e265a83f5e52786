#pragma once

#include <cstdint>

#include "mstar/collectives/comm_group.h"
#include "mstar/components/module.h"

namespace mstar {

// An embedding table split over its rows: rank r holds vocab / tp of them. Ids of other ranks give
// zero rows, and the sum over ranks is exact. A head that matches it is a ColumnParallelLinear with
// gather_output, so that sampling sees all logits. Checkpoint name: weight [vocab, dim].
class VocabParallelEmbedding : public Module {
 public:
  // Throws Error(kInvalidArgument) unless the ranks divide num_embeddings.
  VocabParallelEmbedding(CommGroup& comm,
                         int64_t num_embeddings,
                         int64_t embedding_dim,
                         float scale = 1.0F);

  // ids [...] i32 or i64 -> [..., embedding_dim] of `dtype` (f32 or bf16).
  Tensor forward(Stream& stream, const Tensor& ids, DType dtype) const;

  // This rank's rows before the sum.
  Tensor forward_partial(Stream& stream, const Tensor& ids, DType dtype) const;

  Tensor loaded_weight() const { return parameter_->join(); }

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  CommGroup& comm_;
  int64_t local_rows_;
  int64_t embedding_dim_;
  float scale_;
  Parameter* parameter_;
  Tensor weight_;  // [local_rows, embedding_dim]
};

}  // namespace mstar
