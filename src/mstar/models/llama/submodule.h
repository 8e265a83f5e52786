#pragma once

#include <memory>
#include <vector>

#include "mstar/engine/submodule.h"
#include "mstar/models/llama/transformer.h"
#include "mstar/resources/attention.h"
#include "mstar/resources/kv_cache.h"
#include "mstar/resources/sampler.h"

namespace mstar::llama {

// The only node of a language model: reads a prompt (walk "prefill") or one token a request (walk
// "decode") and draws the next token.
//   in   text_inputs  [n] i32
//   out  new_token    [1] i32
//        token_logprobs  where the request asks for them (models/common/token_logprobs.h)
class LlamaSubmodule : public ARNodeSubmodule {
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
  bool can_batch(const ExecutingBatch& batch, std::span<NodeInputs* const> inputs) override;
  int max_batch_size(std::string_view graph_walk) const override;

  // Steps with rows that want log-probabilities run eagerly: their logits leave the step.
  bool can_use_graph_capture(const ExecutingBatch& batch,
                             std::span<NodeInputs* const> inputs) override;

  bool declare_step(std::string_view graph_walk,
                    std::span<const RequestHandle> request_ids,
                    std::span<const NodeInputs* const> inputs,
                    const SlotLease* lease,
                    std::span<const SlotLease* const> piecewise_leases,
                    SubmoduleStep& step) override;

  ForwardArgs preprocess(std::string_view graph_walk,
                         const ModelInputsFromEngine& engine_inputs,
                         std::span<NodeInputs* const> inputs) override;

  NamedTensors forward(std::string_view graph_walk,
                       const ModelInputsFromEngine& engine_inputs,
                       ForwardArgs& args) override;

  BatchedModelOutput forward_batched(std::string_view graph_walk,
                                     const ModelInputsFromEngine& engine_inputs,
                                     ForwardArgs& args) override;

  // Fails a request whose last hidden state is not finite, and turns the logits that forward left
  // in the outputs into log-probabilities.
  void postprocess(const CurrentForwardPassInfo& info,
                   NamedTensors& outputs,
                   const NodeInputs* inputs) override;

  void check_stop(const CurrentForwardPassInfo& info,
                  const NamedTensors& outputs,
                  const InputMetadata& metadata,
                  std::vector<std::string_view>& stopped_loops) override;

  std::vector<CaptureConfig> get_capture_configs(Device device, int tp_world_size) override;

  const LlamaTransformer& transformer() const { return *transformer_; }

 private:
  // What one step drew. Row i of `tokens` belongs to the step's row drawing[i]: all rows but those
  // that are chunks and not a prompt's last.
  struct Drawn {
    std::vector<int64_t> drawing;
    Tensor tokens;               // [drawing] i32; undefined when no row draws
    Tensor hidden;               // [drawing, hidden_size] that they were drawn from
    std::vector<Tensor> logits;  // [drawing], [1, vocab] f32 of rows that want log-probabilities
  };

  Drawn run(const ModelInputsFromEngine& engine_inputs, ForwardArgs& args);

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

// Tokens that end the text, kept in CurrentForwardPassInfo::values under this name.
inline constexpr std::string_view kStopTokenIds = "stop_token_ids";

}  // namespace mstar::llama
