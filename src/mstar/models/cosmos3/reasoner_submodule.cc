#include "mstar/models/cosmos3/reasoner_submodule.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/embedding.h"
#include "mstar/models/common/answer_format.h"
#include "mstar/models/cosmos3/reasoner_prompt.h"

namespace mstar::cosmos3 {

namespace {

constexpr std::string_view kDecodeWalk = "reasoner_decode";
constexpr std::string_view kVisionEmbeds = "vision_embeds";
constexpr std::string_view kPlaces = "vision_places";      // beside them: [rows] i32
constexpr std::string_view kDrawingRows = "drawing_rows";  // [rows] i32; absent: all rows draw
constexpr int kMaxBatchSize = 32;

// One row's part of a prefill, in NodeInputs::resource_step_info. Absent: a decode step's one
// token.
struct PromptPart {
  ReasonerRequestPtr request;
  Tensor prompt;         // all of it: what penalties count as seen
  Tensor vision;         // the prompt's vision rows; undefined: none
  int64_t begin = 0;     // first token of the part
  bool is_last = false;  // the part that draws
};

const PromptPart* part_of(const NodeInputs& inputs) {
  return std::any_cast<PromptPart>(&inputs.resource_step_info);
}

bool draws(const NodeInputs& inputs) {
  const PromptPart* part = part_of(inputs);
  return part == nullptr || part->is_last;
}

// The rows' positions side by side, [3, tokens].
Tensor join_positions(std::span<const NodeInputs* const> inputs) {
  int64_t total = 0;
  for (const NodeInputs* one : inputs) {
    total += one->input_seq_len;
  }
  Tensor out = Tensor::empty({3, total}, DType::kI32);
  int64_t next = 0;
  for (const NodeInputs* one : inputs) {
    const PromptPart& part = *part_of(*one);
    const Tensor& all = part.request->positions;
    for (int64_t axis = 0; axis < 3; ++axis) {
      std::copy_n(all.data<int32_t>() + axis * all.dim(1) + part.begin,
                  one->input_seq_len,
                  out.data<int32_t>() + axis * total + next);
    }
    next += one->input_seq_len;
  }
  return out;
}

}  // namespace

void PagedText::attend_und(Stream& stream,
                           int32_t layer,
                           const Tensor& q,
                           const Tensor& k,
                           const Tensor&,
                           const Tensor& v,
                           Tensor& out) {
  attention_.attend(stream, where_.at_layer(layer), q, k, v, out);
}

void PagedText::attend_gen(Stream&, int32_t, const Tensor&, const Tensor&, const Tensor&, Tensor&) {
  MSTAR_CHECK(false, "the generation tower has no place in a reasoner's step");
}

Cosmos3ReasonerSubmodule::Cosmos3ReasonerSubmodule(std::shared_ptr<const Transformer> transformer,
                                                   DType activation_dtype)
    : TokenNodeSubmodule(std::string(kDecodeWalk), std::string(kReasonerDecodeLoop)),
      transformer_(std::move(transformer)),
      activation_dtype_(activation_dtype) {}

void Cosmos3ReasonerSubmodule::bind_node_resources(const NodeResources& resources) {
  kv_id_ = resources.id("kv");
  attention_id_ = resources.id("attn_reasoner");
  rope_id_ = resources.id("rope");
  sampler_id_ = resources.id("sampler");
  attention_ = &resources.get<AttentionResource>("attn_reasoner");
  rope_ = &resources.get<PositionResource>("rope");
  sampler_ = &resources.get<SamplerResource>("sampler");
}

std::unique_ptr<NodeInputs> Cosmos3ReasonerSubmodule::prepare_inputs(
    std::string_view graph_walk,
    const CurrentForwardPassInfo& info,
    const NamedTensors& inputs,
    const PrepareContext&) {
  auto prepared = std::make_unique<ARNodeInputs>();
  prepared->input_ids = inputs.tensor("text_inputs");
  prepared->input_seq_len = prepared->input_ids.dim(0);
  if (graph_walk == kDecodeWalk) {
    return prepared;
  }
  if (const auto* rules = info.values.find<AnswerRules>(kAnswerRules)) {
    sampler_->set_rules(info.handle, 0, *rules);
  }
  PromptPart part{.request = info.values.at<ReasonerRequestPtr>(kReasonerRequest),
                  .prompt = prepared->input_ids,
                  .vision = inputs.tensor_or_none(kVisionEmbeds),
                  .begin = 0,
                  .is_last = true};
  const int64_t num_rows = part.vision.defined() ? part.vision.dim(0) : 0;
  if (num_rows != static_cast<int64_t>(part.request->placeholders.size())) {
    throw Error(ErrorCode::kInternal,
                str_cat("[reasoner] ",
                        num_rows,
                        " vision rows for ",
                        part.request->placeholders.size(),
                        " places"));
  }
  prepared->resource_step_info = std::move(part);
  return prepared;
}

std::unique_ptr<NodeInputs> Cosmos3ReasonerSubmodule::split_inputs(std::string_view,
                                                                   const CurrentForwardPassInfo&,
                                                                   const NodeInputs& inputs,
                                                                   int64_t begin,
                                                                   int64_t end) {
  auto chunk = std::make_unique<ARNodeInputs>(static_cast<const ARNodeInputs&>(inputs));
  chunk->input_ids = chunk->input_ids.slice(0, begin, end);
  chunk->input_seq_len = end - begin;
  PromptPart part = *part_of(inputs);
  part.begin += begin;
  part.is_last = part.is_last && end == inputs.input_seq_len;
  chunk->resource_step_info = std::move(part);
  return chunk;
}

bool Cosmos3ReasonerSubmodule::supports_chunked_prefill(std::string_view graph_walk) const {
  return graph_walk != kDecodeWalk;
}

int Cosmos3ReasonerSubmodule::max_batch_size(std::string_view) const {
  return kMaxBatchSize;
}

bool Cosmos3ReasonerSubmodule::declare_step(std::string_view graph_walk,
                                            std::span<const RequestHandle> request_ids,
                                            std::span<const NodeInputs* const> inputs,
                                            const SlotLease*,
                                            std::span<const SlotLease* const>,
                                            SubmoduleStep& step) {
  for (size_t row = 0; row < inputs.size(); ++row) {
    step.add_segment(
        request_ids[row], kReasonerLabel, static_cast<int32_t>(inputs[row]->input_seq_len));
  }
  step.kv.add(kv_id_);
  step.attention.add(attention_id_).causal = true;
  PositionStep& positions = step.position.add(rope_id_);
  if (graph_walk == "reasoner_prefill_vision") {
    positions.pos_ids.emplace_back(kReasonerLabel, join_positions(inputs));
    for (const NodeInputs* one : inputs) {
      const PromptPart& part = *part_of(*one);
      const Tensor& all = part.request->positions;
      positions.advance.push_back(next_position(all, part.begin + one->input_seq_len) -
                                  next_position(all, part.begin));
    }
  }
  SamplerStep* sampler = nullptr;
  for (size_t row = 0; row < inputs.size(); ++row) {
    if (!draws(*inputs[row])) {
      continue;
    }
    if (sampler == nullptr) {
      sampler = &step.sampler.add(sampler_id_);
    }
    sampler->segments.push_back(step.segments[row]);
    if (const PromptPart* part = part_of(*inputs[row])) {
      sampler->prefill_tracked_tokens.push_back({request_ids[row], part->prompt});
    }
  }
  return true;
}

ForwardArgs Cosmos3ReasonerSubmodule::preprocess(std::string_view,
                                                 const ModelInputsFromEngine&,
                                                 std::span<NodeInputs* const> inputs) {
  int64_t num_tokens = 0;
  for (const NodeInputs* one : inputs) {
    num_tokens += one->input_seq_len;
  }
  Tensor ids = Tensor::empty({num_tokens}, DType::kI32);
  std::vector<int32_t> drawing;
  TensorList vision;
  TensorList places;
  int64_t next = 0;
  for (size_t row = 0; row < inputs.size(); ++row) {
    const auto& own = static_cast<const ARNodeInputs&>(*inputs[row]);
    std::copy_n(own.input_ids.data<int32_t>(), own.input_seq_len, ids.data<int32_t>() + next);
    if (draws(own)) {
      drawing.push_back(static_cast<int32_t>(row));
    }
    if (const PromptPart* part = part_of(own); part != nullptr && part->vision.defined()) {
      auto [first, own_places] = placeholders_between(
          part->request->placeholders, part->begin, part->begin + own.input_seq_len);
      const auto count = static_cast<int64_t>(own_places.size());
      if (count > 0) {
        for (int32_t& place : own_places) {
          place += static_cast<int32_t>(next);
        }
        vision.push_back(part->vision.slice(0, first, first + count));
        places.push_back(Tensor::from(own_places, {count}));
      }
    }
    next += own.input_seq_len;
  }
  ForwardArgs args;
  args.tensors.set("input_ids", ids);
  if (drawing.size() < inputs.size()) {
    args.tensors.set(kDrawingRows, Tensor::from(drawing, {static_cast<int64_t>(drawing.size())}));
  }
  if (!vision.empty()) {
    args.tensors.set(kVisionEmbeds, std::move(vision));
    args.tensors.set(kPlaces, std::move(places));
  }
  return args;
}

TokenNodeSubmodule::Drawn Cosmos3ReasonerSubmodule::draw(std::string_view,
                                                         const ModelInputsFromEngine& engine_inputs,
                                                         ForwardArgs& args) {
  Stream& stream = *engine_inputs.stream;
  const AttentionContext where{engine_inputs.context, kReasonerLabel, 0};
  Tensor rows =
      transformer_->embed_text(stream, args.tensors.tensor("input_ids"), activation_dtype_);
  if (const TensorList* vision = args.tensors.find(kVisionEmbeds)) {
    const TensorList& places = args.tensors.at(kPlaces);
    for (size_t index = 0; index < vision->size(); ++index) {
      ops::scatter_rows(stream, (*vision)[index], places[index], rows);
    }
  }
  PagedText attention(where, *attention_);
  const RotaryTable rotary = transformer_->rotary(stream, rope_->pos_ids(where));
  const Tensor normed = transformer_->prefill(stream, rows, rotary, attention, true);
  const auto num_rows = static_cast<int64_t>(engine_inputs.request_ids.size());
  Tensor last = stream.empty({num_rows, normed.dim(1)}, normed.dtype());
  attention_->select_last_hidden(stream, where, normed, last);
  Drawn drawn;
  if (const Tensor drawing = args.tensors.tensor_or_none(kDrawingRows); drawing.defined()) {
    if (drawing.num_elements() == 0) {
      return drawn;
    }
    drawn.drawing = drawing.to_ints();
    Tensor chosen = stream.empty({drawing.dim(0), last.dim(1)}, last.dtype());
    ops::gather_rows(stream, last, drawing, chosen);
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

std::vector<CaptureConfig> Cosmos3ReasonerSubmodule::get_capture_configs(Device device,
                                                                         int tp_world_size) {
  std::vector<CaptureConfig> configs =
      TokenNodeSubmodule::get_capture_configs(device, tp_world_size);
  configs.front().capture_batch_sizes.push_back(kMaxBatchSize);
  return configs;
}

}  // namespace mstar::cosmos3
