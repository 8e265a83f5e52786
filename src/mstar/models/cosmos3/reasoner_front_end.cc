#include "mstar/models/cosmos3/reasoner_front_end.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/thread_pool.h"
#include "mstar/models/common/answer_format.h"
#include "mstar/models/common/token_logprobs.h"
#include "mstar/models/cosmos3/client_media.h"
#include "mstar/models/cosmos3/reasoner_submodule.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::cosmos3 {

namespace {

constexpr const char* kReasonerNode = "reasoner";
constexpr const char* kVisionNode = "vision_encoder";
constexpr const char* kDecodeWalk = "reasoner_decode";
constexpr int64_t kDefaultMaxTokens = 1024;
constexpr int64_t kCommonTokens = 512;  // of a conversation, as far as the cache is sized by many

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[request] ", what));
}

// What the chat template may read besides the messages.
Json template_variables(const Json& parameters) {
  Json variables = Json::object();
  if (const Json* thinking = parameters.find("enable_thinking")) {
    variables.set("enable_thinking", *thinking);
  }
  if (const Json* kwargs = parameters.find("chat_template_kwargs")) {
    for (const auto& [key, value] : kwargs->get_object()) {
      variables.set(key, value);
    }
  }
  return variables;
}

// The messages, with the request's system prompt where the client sent no system message.
std::vector<ChatMessage> with_system_prompt(const ModelRequest& request, const Json& parameters) {
  std::vector<ChatMessage> messages = request.messages;
  const Json* prompt = parameters.find("system_prompt");
  if (prompt != nullptr &&
      std::ranges::find(messages, "system", &ChatMessage::role) == messages.end()) {
    messages.insert(messages.begin(), {"system", {{.text = prompt->get_string()}}});
  }
  return messages;
}

std::string text_of(const ModelRequest& request) {
  std::string text;
  for (const ChatMessage& message : request.messages) {
    for (const ContentPart& part : message.content) {
      text += part.text;
    }
  }
  return text;
}

// Patches of all media one below the other.
Tensor join_patches(const std::vector<VisionItem>& items) {
  int64_t rows = 0;
  for (const VisionItem& item : items) {
    rows += item.patches.dim(0);
  }
  Tensor out = Tensor::empty({rows, items.front().patches.dim(1)}, DType::kU8);
  std::byte* next = out.bytes();
  for (const VisionItem& item : items) {
    std::memcpy(next, item.patches.bytes(), static_cast<size_t>(item.patches.size_bytes()));
    next += item.patches.size_bytes();
  }
  return out;
}

Tensor grid_tensor(const std::vector<VisionItem>& items) {
  std::vector<int32_t> sizes;
  for (const VisionItem& item : items) {
    for (const int64_t size : {item.grid.frames, item.grid.rows, item.grid.columns}) {
      sizes.push_back(static_cast<int32_t>(size));
    }
  }
  return Tensor::from(sizes, {static_cast<int64_t>(items.size()), 3});
}

FrameChoice frame_choice(const Json& parameters) {
  FrameChoice choice;
  if (const Json* count = parameters.find("video_num_frames")) {
    choice.num_frames = count->get_int();
  }
  if (const Json* fps = parameters.find("video_fps")) {
    choice.fps = fps->get_double();
  }
  if (choice.num_frames && choice.fps) {
    refuse("\"video_num_frames\" and \"video_fps\": expected one of them");
  }
  return choice;
}

// Media as the tower reads them, one after the other. Looks at how many tokens they take before it
// works on their pixels: those are what costs.
class MediaReader {
 public:
  MediaReader(const ReasonerConfig& config, int64_t max_tokens, const FrameChoice& choice)
      : config_(config), max_tokens_(max_tokens), choice_(choice), pool_(1), stream_(pool_) {}

  void add(const MediaItem& media) {
    if (media.modality == Modality::kImage) {
      add_picture(media);
    } else if (media.modality == Modality::kVideo) {
      add_clip(media);
    } else {
      throw Error(ErrorCode::kUnsupported,
                  str_cat("[", media.name, "] this model reads no ", to_string(media.modality)));
    }
  }

  std::vector<VisionItem> take() { return std::move(items_); }

 private:
  void add_picture(const MediaItem& media) {
    const Tensor frame = read_picture(media).unsqueeze(0);
    const PixelSize size = smart_resize(
        1, {frame.dim(1), frame.dim(2)}, config_.vision.factor(), config_.image, media.name);
    VisionItem item;
    item.grid = grid_of(1, size);
    count(item.grid);
    item.patches = patches_of(frame, size);
    items_.push_back(std::move(item));
  }

  void add_clip(const MediaItem& media) {
    const ClipInfo info = read_clip_info(media);
    const std::vector<int64_t> indices =
        sample_frames(info.num_frames, info.fps, config_.sampling, choice_);
    const auto num_frames = static_cast<int64_t>(indices.size());
    const PixelSize size =
        smart_resize(num_frames, info.size, config_.vision.factor(), config_.video, media.name);
    VisionItem item;
    item.grid = grid_of(num_frames, size);
    count(item.grid);
    for (const int64_t index : indices) {
      item.seconds.push_back(static_cast<double>(index) / info.fps);
    }
    item.patches = Tensor::empty({item.grid.num_patches(), config_.vision.patch_dim()}, DType::kU8);
    // As many frames at a time as memory is meant to hold: each time the clip is decoded anew.
    constexpr int64_t kMostBytes = int64_t{768} << 20;
    const int64_t frame_bytes = info.size.height * info.size.width * 3;
    const auto most = static_cast<size_t>(std::max<int64_t>(kMostBytes / frame_bytes, 1));
    std::byte* next = item.patches.bytes();
    for (size_t begin = 0; begin < indices.size(); begin += most) {
      const auto part = std::span(indices).subspan(begin, std::min(most, indices.size() - begin));
      const Tensor own = patches_of(read_clip_frames(media, part), size);
      std::memcpy(next, own.bytes(), static_cast<size_t>(own.size_bytes()));
      next += own.size_bytes();
    }
    items_.push_back(std::move(item));
  }

  PatchGrid grid_of(int64_t num_frames, const PixelSize& size) const {
    const int64_t patch = config_.vision.patch_size;
    return {.frames = num_frames, .rows = size.height / patch, .columns = size.width / patch};
  }

  Tensor patches_of(const Tensor& frames, const PixelSize& size) {
    return to_patches(resize_frames(stream_, frames, size),
                      config_.vision.patch_size,
                      config_.vision.spatial_merge_size);
  }

  void count(const PatchGrid& grid) {
    const int64_t merge = config_.vision.spatial_merge_size;
    num_tokens_ += grid.num_patches() / (merge * merge);
    if (num_tokens_ > max_tokens_) {
      refuse(str_cat("the first ",
                     items_.size() + 1,
                     " of the media take ",
                     num_tokens_,
                     " tokens, this model reads ",
                     max_tokens_,
                     " at most"));
    }
  }

  const ReasonerConfig& config_;
  const int64_t max_tokens_;
  const FrameChoice choice_;
  ThreadPool pool_;
  CpuStream stream_;
  std::vector<VisionItem> items_;
  int64_t num_tokens_ = 0;
};

}  // namespace

ReasonerFrontEnd::ReasonerFrontEnd(const Cosmos3Config& config,
                                   const PromptEncoder& prompts,
                                   int64_t max_model_len,
                                   int64_t max_concurrent_requests)
    : config_(config),
      text_(prompts.text()),
      grammars_(std::make_unique<TokenGrammars>(
          text_.tokenizer,
          config.transformer.vocab_size,
          std::vector<int32_t>{static_cast<int32_t>(config.reasoner->eos_token_id)})),
      encoder_(text_, *config.reasoner, config.tokenizer_folder()),
      max_model_len_(max_model_len),
      max_concurrent_requests_(max_concurrent_requests) {}

std::vector<RequestParameter> ReasonerFrontEnd::parameters() {
  using Type = RequestParameter::Type;
  std::vector<RequestParameter> out = language_parameters(SamplingParams(), kDefaultMaxTokens);
  out.push_back({.name = "system_prompt",
                 .type = Type::kString,
                 .help = "a system message for conversations that have none",
                 .max_length = 65536});
  out.push_back({.name = "video_num_frames",
                 .type = Type::kInt,
                 .min = 1,
                 .max = 768,
                 .unit = "frames",
                 .help = "frames that are looked at of a given video"});
  out.push_back({.name = "video_fps",
                 .type = Type::kFloat,
                 .min = 0.01,
                 .max = 240.0,
                 .unit = "frames per second",
                 .help = "frames that are looked at of every second of a given video; 2"});
  return out;
}

void ReasonerFrontEnd::add_walks(graph::ModelGraph& graph) const {
  using namespace graph;  // NOLINT: the words of a declaration
  const auto reads_prompt = [](std::vector<std::string> inputs) {
    return node(kReasonerNode)
        .needs(std::move(inputs))
        .makes(edge(std::string(kLogprobsEdge)).to_client(Modality::kText))
        .makes(edge("new_token").to_client(Modality::kText).counts_as_token())
        .makes(edge("new_token").kept());
  };
  graph.walks.push_back(walk("reasoner_prefill", {"text_inputs"}, reads_prompt({"text_inputs"})));
  graph.walks.push_back(walk("reasoner_prefill_vision",
                             {"text_inputs", "pixel_values", "vision_grid_thw"},
                             node(kVisionNode)
                                 .needs({"pixel_values", "vision_grid_thw"})
                                 .makes(edge("vision_embeds").to(kReasonerNode)),
                             reads_prompt({"text_inputs", "vision_embeds"})));
  graph.walks.push_back(
      walk(kDecodeWalk,
           {"text_inputs"},
           loop(std::string(kReasonerDecodeLoop),
                kUntilStopped,
                node(kReasonerNode)
                    .needs({"text_inputs"})
                    .makes(edge(std::string(kLogprobsEdge)).to_client(Modality::kText))
                    .makes(edge("new_token").to(kReasonerNode, "text_inputs"))
                    .makes(edge("new_token").to_client(Modality::kText).counts_as_token()))
               .gives_all("new_token", edge("answer_tokens").kept())));
}

void ReasonerFrontEnd::add_resources(std::vector<NodeResourceSpec>& resources) const {
  for (NodeResourceSpec& resource : resources) {
    if (resource.resource_key == "kv") {
      auto& kv = std::get<KVSpec>(resource.spec);
      const auto pages = [&](int64_t tokens) { return (tokens + kv.page_size - 1) / kv.page_size; };
      resource.nodes.emplace_back(kReasonerNode);
      kv.max_num_pages += pages(max_model_len_) + max_concurrent_requests_ * pages(kCommonTokens);
    }
  }
  resources.push_back({"attn_reasoner", {kReasonerNode}, AttentionSpec{.kv = "kv"}});
  resources.push_back(
      {"rope", {kReasonerNode}, PositionSpec{.kv = "kv", .num_axes = 3, .use_rope = false}});
  resources.push_back({"sampler",
                       {kReasonerNode},
                       SamplerSpec{.vocab_size = config_.transformer.vocab_size,
                                   .enable_repetition_penalty = true,
                                   .enable_count_penalty = true,
                                   .enable_logit_bias = true}});
}

// The media of the messages' parts, in order.
std::vector<VisionItem> ReasonerFrontEnd::read_media(const ModelRequest& request,
                                                     const Json& parameters) const {
  MediaReader reader(*config_.reasoner, max_model_len_ - 1, frame_choice(parameters));
  std::vector<bool> used(request.media.size(), false);
  for (const ChatMessage& message : request.messages) {
    for (const ContentPart& part : message.content) {
      if (part.modality == Modality::kText) {
        continue;
      }
      if (part.media < 0 || static_cast<size_t>(part.media) >= request.media.size()) {
        refuse(str_cat(
            "a message refers to file ", part.media, ", the request has ", request.media.size()));
      }
      const auto index = static_cast<size_t>(part.media);
      const MediaItem& media = request.media[index];
      if (media.modality != part.modality) {
        refuse(str_cat("a message refers to ",
                       media.name,
                       " as ",
                       to_string(part.modality),
                       ", it is ",
                       to_string(media.modality)));
      }
      used[index] = true;
      reader.add(media);
    }
  }
  const auto unused = std::ranges::find(used, false);
  if (unused != used.end()) {
    refuse(str_cat("no message refers to ",
                   request.media[static_cast<size_t>(unused - used.begin())].name));
  }
  return reader.take();
}

void ReasonerFrontEnd::prepare(const ModelRequest& request,
                               const Json& parameters,
                               PreparedRequest& out) const {
  const std::vector<VisionItem> items = read_media(request, parameters);
  ReasonerPrompt prompt;
  if (request.raw_prompt) {
    if (!items.empty()) {
      refuse("pictures and videos need the chat template; leave the raw prompt");
    }
    prompt.ids = text_.encode_text(text_of(request));
  } else {
    prompt = encoder_.encode(
        text_, with_system_prompt(request, parameters), template_variables(parameters), items);
  }
  const auto num_prompt = static_cast<int64_t>(prompt.ids.size());
  if (num_prompt == 0) {
    refuse("the prompt is empty");
  }
  if (num_prompt >= max_model_len_) {
    refuse(str_cat("the prompt has ",
                   num_prompt,
                   " tokens, this model reads ",
                   max_model_len_ - 1,
                   " at most"));
  }
  const int64_t vocab_size = config_.transformer.vocab_size;
  for (const int32_t id : prompt.ids) {
    if (id < 0 || id >= vocab_size) {
      refuse(str_cat("the prompt has token ", id, ", this checkpoint has ", vocab_size));
    }
  }
  const SamplingParams sampling = sampling_params(parameters);
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      refuse(str_cat("\"logit_bias\": token ", token, ", expected 0 to ", vocab_size - 1));
    }
  }
  std::vector<int32_t> stops;
  if (!sampling.ignore_eos) {
    stops = {config_.reasoner->eos_token_id};
  }
  out.values.set(kStopTokenIds, std::move(stops));
  if (const Json* top = parameters.find("logprobs")) {
    out.values.set(kNumLogprobs, static_cast<int32_t>(top->get_int()));
  }
  auto conversation = std::make_shared<ReasonerRequest>();
  for (const PlaceholderRun& run : prompt.runs) {
    for (int64_t i = 0; i < run.size(); ++i) {
      conversation->placeholders.push_back(static_cast<int32_t>(run.begin + i));
    }
  }
  out.inputs.set("text_inputs", Tensor::from(prompt.ids, {num_prompt}));
  out.input_modalities = {Modality::kText};
  if (!items.empty()) {
    conversation->positions = prompt_positions(num_prompt, prompt.runs);
    out.inputs.set("pixel_values", join_patches(items));
    out.inputs.set("vision_grid_thw", grid_tensor(items));
    for (const MediaItem& media : request.media) {
      if (std::ranges::find(out.input_modalities, media.modality) == out.input_modalities.end()) {
        out.input_modalities.push_back(media.modality);
      }
    }
  }
  out.num_prompt_tokens = num_prompt;
  out.max_tokens = std::min(parameters.at("max_tokens").get_int(), max_model_len_ - num_prompt);
  out.stop_strings = stop_strings(parameters);
  out.values.set(kReasonerRequest, ReasonerRequestPtr(std::move(conversation)));
  if (AnswerRules rules = answer_rules(parameters, *grammars_)) {
    out.values.set(kAnswerRules, std::move(rules));
  }
  KVRequestConfig kv;
  kv.needed_labels = {kReasonerLabel};
  kv.max_tokens = num_prompt + out.max_tokens;
  out.resource_configs["kv"] = std::move(kv);
  out.resource_configs["sampler"] =
      SamplingRequestConfig{.seed = out.random_seed, .params = {sampling}};
}

bool ReasonerFrontEnd::is_conversation(const PreparedRequest& request) {
  return request.values.contains(kReasonerRequest);
}

ForwardPassArgs ReasonerFrontEnd::first_walk(RequestProgress& progress) const {
  ForwardPassArgs args;
  args.graph_walk = "reasoner_prefill";
  args.inputs.set("text_inputs", progress.persist_signals.at("text_inputs"));
  args.unpersist = {"text_inputs"};
  if (progress.persist_signals.contains("pixel_values")) {
    args.graph_walk = "reasoner_prefill_vision";
    for (const char* name : {"pixel_values", "vision_grid_thw"}) {
      args.inputs.set(name, progress.persist_signals.at(name));
      args.unpersist.emplace_back(name);
    }
  }
  return args;
}

ForwardPassArgs ReasonerFrontEnd::next_walk(RequestProgress& progress) const {
  ForwardPassArgs args;
  const Tensor first = progress.persist_signals.tensor("new_token");
  const auto& stops = progress.request.values.at<std::vector<int32_t>>(kStopTokenIds);
  if (progress.graph_walk == kDecodeWalk || progress.request.max_tokens <= 1 ||
      std::ranges::find(stops, *first.data<int32_t>()) != stops.end()) {
    args.request_done = true;
    return args;
  }
  args.graph_walk = kDecodeWalk;
  args.inputs.set("text_inputs", first);
  args.loop_limits = {{std::string(kReasonerDecodeLoop), progress.request.max_tokens - 1}};
  return args;
}

std::string ReasonerFrontEnd::answer_of(const RequestProgress& progress) const {
  std::vector<int32_t> ids;
  for (const char* name : {"new_token", "answer_tokens"}) {
    if (const TensorList* tokens = progress.persist_signals.find(name)) {
      for (const Tensor& token : *tokens) {
        for (const int64_t id : token.to_ints()) {
          ids.push_back(static_cast<int32_t>(id));
        }
      }
    }
  }
  if (const auto thought = text_.tokenizer->find_token("</think>")) {
    const auto last = std::ranges::find(ids.rbegin(), ids.rend(), *thought);
    ids.erase(ids.begin(), last.base());
  }
  std::string answer = text_.tokenizer->decode(ids, true);
  for (const std::string& stop : progress.request.stop_strings) {
    if (!stop.empty()) {
      answer.resize(std::min(answer.find(stop), answer.size()));
    }
  }
  const size_t begin = answer.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) {
    return "";
  }
  return answer.substr(begin, answer.find_last_not_of(" \t\r\n") + 1 - begin);
}

std::unique_ptr<OutputStream> ReasonerFrontEnd::make_output_stream(
    const PreparedRequest& request) const {
  const Tensor prompt = request.inputs.tensor("text_inputs");
  return std::make_unique<TextOutputStream>(
      text_.tokenizer,
      TextOutputStream::Config{
          .stop_token_ids = request.values.at<std::vector<int32_t>>(kStopTokenIds),
          .stop_strings = request.stop_strings,
          .max_tokens = request.max_tokens},
      std::span(prompt.data<int32_t>(), static_cast<size_t>(prompt.num_elements())));
}

}  // namespace mstar::cosmos3
