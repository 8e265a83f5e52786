#pragma once

#include <memory>
#include <vector>

#include "mstar/models/common/token_node.h"
#include "mstar/models/llama/transformer.h"
#include "mstar/resources/attention.h"
#include "mstar/resources/kv_cache.h"
#include "mstar/resources/sampler.h"

namespace mstar::llama {

// The only node of a language model: reads a prompt (walk "prefill") or one token a request (walk
// "decode") and draws the next token.
//   in   text_inputs  [n] i32
//   out  as every TokenNodeSubmodule
class LlamaSubmodule : public TokenNodeSubmodule {
 public:
  LlamaSubmodule(std::unique_ptr<LlamaTransformer> transformer, DType activation_dtype);

  void bind_node_resources(const NodeResources& resources) override;

  std::unique_ptr<NodeInputs> prepare_inputs(std::string_view graph_walk,
                                             const CurrentForwardPassInfo& info,
                                             const NamedTensors& inputs,
                                             const PrepareContext& context) override;

  std::unique_ptr<NodeInputs> split_inputs(std::string_view graph_walk,
                                           const CurrentForwardPassInfo& info,
                                           const NodeInputs& inputs,
                                           int64_t begin,
                                           int64_t end) override;

  bool supports_chunked_prefill(std::string_view graph_walk) const override;
  int max_batch_size(std::string_view graph_walk) const override;

  bool declare_step(std::string_view graph_walk,
                    std::span<const RequestHandle> request_ids,
                    std::span<const NodeInputs* const> inputs,
                    const SlotLease* lease,
                    std::span<const SlotLease* const> piecewise_leases,
                    SubmoduleStep& step) override;

  ForwardArgs preprocess(std::string_view graph_walk,
                         const ModelInputsFromEngine& engine_inputs,
                         std::span<NodeInputs* const> inputs) override;

  const LlamaTransformer& transformer() const { return *transformer_; }

 private:
  Drawn draw(std::string_view graph_walk,
             const ModelInputsFromEngine& engine_inputs,
             ForwardArgs& args) override;

  std::unique_ptr<LlamaTransformer> transformer_;
  DType activation_dtype_;
  ResourceId kv_id_ = -1;
  ResourceId attention_id_ = -1;
  ResourceId rope_id_ = -1;
  ResourceId sampler_id_ = -1;
  KvCache* kv_ = nullptr;
  AttentionResource* attention_ = nullptr;
  SamplerResource* sampler_ = nullptr;
};

}  // namespace mstar::llama
