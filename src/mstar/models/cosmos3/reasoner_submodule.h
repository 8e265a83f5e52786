// The "reasoner" node: the understanding tower as a causal language model over text and vision
// rows, on the weights of the "dit" node. Executor thread.
//   reasoner_prefill         text_inputs [n] i32 -> new_token [1] i32
//   reasoner_prefill_vision  the same with vision_embeds [rows, hidden_size] in the places of the
//                            prompt's placeholders
//   reasoner_decode          text_inputs [1], the token before -> new_token
// Each with token_logprobs where the request asks for them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "mstar/models/common/token_node.h"
#include "mstar/models/cosmos3/transformer.h"
#include "mstar/models/cosmos3/vision_input.h"
#include "mstar/resources/attention.h"
#include "mstar/resources/sampler.h"

namespace mstar::cosmos3 {

// Cache label of a conversation's text; beside the generator's own, see dit_submodule.h.
inline constexpr LabelId kReasonerLabel = 3;

inline constexpr std::string_view kReasonerDecodeLoop = "reasoner_decode_loop";

// Where the walks find a conversation's facts among CurrentForwardPassInfo::values.
inline constexpr std::string_view kReasonerRequest = "cosmos3_reasoner";

struct ReasonerRequest {
  Tensor positions;                   // [3, prompt tokens] i32; undefined: text alone
  std::vector<int32_t> placeholders;  // token indices that vision rows take, ascending
};

using ReasonerRequestPtr = std::shared_ptr<const ReasonerRequest>;

// Text rows of a step over the paged cache, for the tower's layers.
class PagedText : public TowerAttention {
 public:
  PagedText(const AttentionContext& where, AttentionResource& attention)
      : where_(where), attention_(attention) {}

  bool keeps_for_gen() const override { return false; }

  void attend_und(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& k_for_gen,
                  const Tensor& v,
                  Tensor& out) override;

  // A check: text never runs the generation tower.
  void attend_gen(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& v,
                  Tensor& out) override;

 private:
  AttentionContext where_;
  AttentionResource& attention_;
};

class Cosmos3ReasonerSubmodule : public TokenNodeSubmodule {
 public:
  // `transformer` has its language head. Rows are f32 or bf16, logits f32.
  Cosmos3ReasonerSubmodule(std::shared_ptr<const Transformer> transformer, DType activation_dtype);

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

  // One capture a batch size of the decode step.
  std::vector<CaptureConfig> get_capture_configs(Device device, int tp_world_size) override;

  const Transformer& transformer() const { return *transformer_; }

 protected:
  Drawn draw(std::string_view graph_walk,
             const ModelInputsFromEngine& engine_inputs,
             ForwardArgs& args) override;

 private:
  std::shared_ptr<const Transformer> transformer_;
  DType activation_dtype_;
  ResourceId kv_id_ = -1;
  ResourceId attention_id_ = -1;
  ResourceId rope_id_ = -1;
  ResourceId sampler_id_ = -1;
  AttentionResource* attention_ = nullptr;
  PositionResource* rope_ = nullptr;
  SamplerResource* sampler_ = nullptr;
};

}  // namespace mstar::cosmos3
