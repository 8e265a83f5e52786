#pragma once

#include <cstdint>

#include "mstar/resources/resource.h"

namespace mstar {

// Sampling as a submodule sees it. Results depend on the request's seed, the sampler's name, the
// request's own step count and its logits, and on nothing else in the batch.
class SamplerResource : public Resource {
 public:
  using Resource::Resource;

  // Draws one token per row; row i is the step's segment i of the sampler's entry. Executor;
  // captured like any op.
  //   logits  [rows, vocab] f32 or bf16; f32 rows with penalties or bias are changed in place
  //   tokens  [rows] i32
  //   probs   [rows, vocab] f32 or undefined: the distribution drawn from
  // `sampler` is the index of the named configuration, `draw` counts the draws of this step.
  virtual void sample(Stream& stream,
                      const StepContext& context,
                      int32_t sampler,
                      int32_t draw,
                      Tensor& logits,
                      Tensor& tokens,
                      Tensor& probs) = 0;
};

}  // namespace mstar
