#include "mstar/models/llama/submodule.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/embedding.h"
#include "mstar/models/common/answer_format.h"

namespace mstar::llama {

namespace {

// NodeInputs::kwargs: whether the row draws a token, and the whole prompt of a prefill: a chunk or
// the rest behind a cached prefix is only its end.
constexpr std::string_view kDraws = "draws";
constexpr std::string_view kPrompt = "prompt";

bool draws(const NodeInputs& inputs) {
  return inputs.kwargs.get(kDraws, true);
}

}  // namespace

LlamaSubmodule::LlamaSubmodule(std::unique_ptr<LlamaTransformer> transformer,
                               DType activation_dtype)
    : TokenNodeSubmodule("decode", "decode_loop"),
      transformer_(std::move(transformer)),
      activation_dtype_(activation_dtype) {}

void LlamaSubmodule::bind_node_resources(const NodeResources& resources) {
  kv_id_ = resources.id("kv");
  attention_id_ = resources.id("attn");
  rope_id_ = resources.id("rope");
  sampler_id_ = resources.id("sampler");
  kv_ = &resources.get<KvCache>("kv");
  attention_ = &resources.get<AttentionResource>("attn");
  sampler_ = &resources.get<SamplerResource>("sampler");
  transformer_->bind_resources(resources.map());
}

std::unique_ptr<NodeInputs> LlamaSubmodule::prepare_inputs(std::string_view graph_walk,
                                                           const CurrentForwardPassInfo& info,
                                                           const NamedTensors& inputs,
                                                           const PrepareContext&) {
  auto prepared = std::make_unique<ARNodeInputs>();
  prepared->input_ids = inputs.tensor("text_inputs");
  const bool is_prefill = graph_walk == "prefill";
  if (is_prefill) {
    if (const auto* rules = info.values.find<AnswerRules>(kAnswerRules)) {
      sampler_->set_rules(info.handle, 0, *rules);
    }
    prepared->kwargs.set(kPrompt, prepared->input_ids);
  }
  // Tokens that the prefix cache already holds are not computed again.
  const CacheStream* stream = kv_->find_stream(info.handle, kMainLabel);
  const int64_t cached = is_prefill && stream != nullptr ? stream->stored_len : 0;
  // A generated token becomes part of what a later turn may begin with. Said once: a step that is
  // put off is prepared again.
  if (!is_prefill && stream != nullptr && !stream->keys.empty() &&
      static_cast<int64_t>(stream->keys.size()) == stream->stored_len) {
    const auto token = static_cast<uint64_t>(*prepared->input_ids.data<int32_t>());
    kv_->extend_prefix_keys(info.handle, kMainLabel, std::span(&token, 1));
  }
  if (cached > 0) {
    prepared->input_ids = prepared->input_ids.slice(0, cached, prepared->input_ids.dim(0));
  }
  prepared->input_seq_len = prepared->input_ids.dim(0);
  return prepared;
}

std::unique_ptr<NodeInputs> LlamaSubmodule::split_inputs(std::string_view graph_walk,
                                                         const CurrentForwardPassInfo& info,
                                                         const NodeInputs& inputs,
                                                         int64_t begin,
                                                         int64_t end) {
  ARNodeInputs tokens = static_cast<const ARNodeInputs&>(inputs);
  const ValueMap kwargs = std::exchange(tokens.kwargs, {});
  auto chunk = ARNodeSubmodule::split_inputs(graph_walk, info, tokens, begin, end);
  chunk->kwargs = kwargs;
  chunk->kwargs.set(kDraws, end == inputs.input_seq_len);
  return chunk;
}

bool LlamaSubmodule::supports_chunked_prefill(std::string_view graph_walk) const {
  return graph_walk == "prefill";
}

int LlamaSubmodule::max_batch_size(std::string_view) const {
  return 64;
}

bool LlamaSubmodule::declare_step(std::string_view,
                                  std::span<const RequestHandle> request_ids,
                                  std::span<const NodeInputs* const> inputs,
                                  const SlotLease*,
                                  std::span<const SlotLease* const>,
                                  SubmoduleStep& step) {
  for (size_t row = 0; row < inputs.size(); ++row) {
    step.add_segment(
        request_ids[row], kMainLabel, static_cast<int32_t>(inputs[row]->input_seq_len));
  }
  step.kv.add(kv_id_);
  step.attention.add(attention_id_).causal = true;
  step.position.add(rope_id_);
  SamplerStep* sampler = nullptr;
  for (size_t row = 0; row < inputs.size(); ++row) {
    if (!draws(*inputs[row])) {
      continue;
    }
    if (sampler == nullptr) {
      sampler = &step.sampler.add(sampler_id_);
    }
    sampler->segments.push_back(step.segments[row]);
    if (const Tensor* prompt = inputs[row]->kwargs.find<Tensor>(kPrompt)) {
      sampler->prefill_tracked_tokens.push_back({request_ids[row], *prompt});
    }
  }
  return true;
}

ForwardArgs LlamaSubmodule::preprocess(std::string_view,
                                       const ModelInputsFromEngine&,
                                       std::span<NodeInputs* const> inputs) {
  int64_t num_tokens = 0;
  std::vector<int32_t> drawing;
  for (size_t row = 0; row < inputs.size(); ++row) {
    num_tokens += inputs[row]->input_seq_len;
    if (draws(*inputs[row])) {
      drawing.push_back(static_cast<int32_t>(row));
    }
  }
  Tensor ids = Tensor::empty({num_tokens}, DType::kI32);
  int32_t* next = ids.data<int32_t>();
  for (const NodeInputs* one : inputs) {
    const Tensor& own = static_cast<const ARNodeInputs&>(*one).input_ids;
    std::memcpy(next, own.data<int32_t>(), static_cast<size_t>(own.size_bytes()));
    next += own.num_elements();
  }
  ForwardArgs args;
  args.tensors.set("input_ids", ids);
  if (drawing.size() < inputs.size()) {
    args.tensors.set("drawing_rows", Tensor::from(drawing, {static_cast<int64_t>(drawing.size())}));
  }
  return args;
}

TokenNodeSubmodule::Drawn LlamaSubmodule::draw(std::string_view,
                                               const ModelInputsFromEngine& engine_inputs,
                                               ForwardArgs& args) {
  Stream& stream = *engine_inputs.stream;
  const AttentionContext context{engine_inputs.context, kMainLabel, 0};
  Tensor hidden = transformer_->embed(stream, args.tensors.tensor("input_ids"), activation_dtype_);
  hidden = transformer_->forward(stream, hidden, context);
  const auto num_rows = static_cast<int64_t>(engine_inputs.request_ids.size());
  Tensor last = stream.empty({num_rows, hidden.dim(1)}, hidden.dtype());
  attention_->select_last_hidden(stream, context, hidden, last);
  Drawn drawn;
  if (const Tensor rows = args.tensors.tensor_or_none("drawing_rows"); rows.defined()) {
    if (rows.num_elements() == 0) {
      return drawn;
    }
    drawn.drawing = rows.to_ints();
    Tensor chosen = stream.empty({rows.dim(0), hidden.dim(1)}, hidden.dtype());
    ops::gather_rows(stream, last, rows, chosen);
    last = chosen;
  } else {
    drawn.drawing.resize(static_cast<size_t>(num_rows));
    std::iota(drawn.drawing.begin(), drawn.drawing.end(), 0);
  }
  drawn.hidden = last;
  Tensor logits = transformer_->logits(stream, last);
  drawn.logits = keep_logits(engine_inputs, drawn.drawing, logits);
  drawn.tokens = stream.empty({last.dim(0)}, DType::kI32);
  Tensor probs;
  sampler_->sample(stream, *engine_inputs.context, 0, 0, logits, drawn.tokens, probs);
  return drawn;
}

}  // namespace mstar::llama
