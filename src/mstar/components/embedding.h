#pragma once

#include <cstdint>

#include "mstar/components/module.h"

namespace mstar {

// A table of rows looked up by id. Checkpoint name: weight [num_embeddings, embedding_dim]. The
// table stays in the type it came in, mapped from the checkpoint where that is aligned; rows of
// GGUF blocks are decoded as they are looked up.
class Embedding : public Module {
 public:
  // `scale` multiplies every row (Gemma: sqrt(hidden_size)).
  Embedding(int64_t num_embeddings, int64_t embedding_dim, float scale = 1.0F);

  // ids [...] i32 or i64 -> [..., embedding_dim] of `dtype` (f32 or bf16). Ids outside the table
  // give zero rows.
  Tensor forward(Stream& stream, const Tensor& ids, DType dtype) const;

  // The table as stored, for a head that shares it (Linear::tie_weight). After finalize().
  const Tensor& weight() const { return weight_; }

  // The same before finalize().
  Tensor loaded_weight() const { return parameter_->join(); }

 protected:
  void pack(const FinalizeOptions& options) override;

 private:
  Parameter* parameter_;
  int64_t embedding_dim_;
  float scale_;
  Tensor weight_;  // as stored
};

}  // namespace mstar
