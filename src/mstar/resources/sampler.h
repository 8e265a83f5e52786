#pragma once

#include <cstdint>
#include <memory>

#include "mstar/resources/resource.h"
#include "mstar/resources/token_rules.h"

namespace mstar {

// Sampling as a submodule sees it. Results depend on the request's seed, the sampler's name, the
// request's own step count and its logits, and on nothing else in the batch.
class SamplerResource : public Resource {
 public:
  using Resource::Resource;

  // From its first token on the request's answer under `sampler` follows these rules: before each
  // step they hear of the last token and say which ones may come. Said before the request's first
  // plan; saying it again changes nothing. One draw a step. Step loop. Throws Error(kUnsupported)
  // when the sampler keeps nothing of its requests (no penalties, no bias).
  virtual void set_rules(RequestHandle request,
                         int32_t sampler,
                         const std::shared_ptr<const TokenRulesSource>& rules) = 0;

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
