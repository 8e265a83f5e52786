#include "mstar/models/cosmos3/model.h"

#include <algorithm>
#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/graph/compile.h"
#include "mstar/kernels/cpu/isa.h"
#include "mstar/models/cosmos3/codec_submodules.h"
#include "mstar/models/cosmos3/dit_submodule.h"
#include "mstar/models/cosmos3/memory_estimate.h"
#include "mstar/models/cosmos3/output_stream.h"
#include "mstar/models/cosmos3/reasoner_submodule.h"
#include "mstar/models/cosmos3/request_media.h"
#include "mstar/models/cosmos3/vae_decoder_ar.h"
#include "mstar/models/cosmos3/vision_submodule.h"
#include "mstar/models/cosmos3/walks.h"

namespace mstar::cosmos3 {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kPageSize = 128;  // tokens
constexpr int64_t kMaxTextTokens = kMaxPromptTokens + 2;

// The prompt: all user text, in order. Other roles are the templates' own.
std::string prompt_of(const ModelRequest& request) {
  std::string text;
  for (const ChatMessage& message : request.messages) {
    if (message.role != "user") {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[request] a message of role \"",
                          message.role,
                          "\": generation reads user messages"));
    }
    for (const ContentPart& part : message.content) {
      text += part.text;
    }
  }
  return text;
}

bool wants(const ModelRequest& request, Modality modality) {
  return std::ranges::find(request.output_modalities, modality) != request.output_modalities.end();
}

// What a conversation asks the generator for: media of the asked kinds, from what the user said
// last (the prompt, should the answer be empty) and, but for images, from the last picture.
ModelRequest generation_of(const ModelRequest& request, Modality output) {
  ModelRequest out;
  out.request_id = request.request_id;
  for (const Modality modality : request.output_modalities) {
    if (modality != Modality::kText) {
      out.output_modalities.push_back(modality);
    }
  }
  for (const ChatMessage& message : request.messages) {
    if (message.role == "user") {
      out.messages = {message};
    }
  }
  const auto last = std::ranges::find(
      request.media.rbegin(), request.media.rend(), Modality::kImage, &MediaItem::modality);
  if (output != Modality::kImage && last != request.media.rend()) {
    out.media = {*last};
  }
  return out;
}

// What is asked for and would not come is an error, not silence.
void check_outputs(const ModelRequest& request,
                   const GenRequest& plan,
                   const std::vector<Modality>& served) {
  const std::vector<Modality> made = outputs_of(plan.walk);
  for (const Modality modality : made) {
    if (std::ranges::find(served, modality) == served.end()) {
      throw Error(
          ErrorCode::kUnsupported,
          str_cat(
              "[request] needs ", to_string(modality), ", which this model was started without"));
    }
  }
  for (const Modality modality : request.output_modalities) {
    if (std::ranges::find(made, modality) == made.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[request] \"output_modalities\": found ",
                          to_string(modality),
                          ", a request like this makes ",
                          to_string(made.front())));
    }
  }
}

// With bf16 activations matrices and filters are bf16 too, as torch's model.to(bfloat16) makes
// them, whatever the checkpoint stores: only such pairs meet in the processor's bf16 products.
FinalizeOptions finalize_options(const LoadContext& context) {
  FinalizeOptions options{context.pool};
  if (context.activation_dtype == DType::kBF16) {
    options.weight_format = WeightFormat::kBF16;
  }
  return options;
}

uint64_t seed_of(const Json& parameters, std::string_view request_id) {
  return request_seed(parameters, request_id);
}

}  // namespace

std::unique_ptr<Model> Cosmos3Model::open(const std::string& path, const Json& model_kwargs) {
  std::unique_ptr<Cosmos3Model> model(new Cosmos3Model);
  model->config_ = Cosmos3Config::load(path);
  model->prompts_ = PromptEncoder::load(model->config_.tokenizer_folder());
  model->describe(model_kwargs);
  return model;
}

void Cosmos3Model::describe(const Json& model_kwargs) {
  options_ = ServingOptions::parse(model_kwargs, config_);
  description_.max_model_len = options_.max_model_len;
  sessions_ =
      std::make_shared<WindowSessions>(options_.session_store_size, options_.session_store_bytes);
  const fs::path folder(config_.folder);
  description_.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  description_.family = "cosmos3";
  description_.output_modalities = options_.outputs;
  description_.input_modalities = {Modality::kText};
  if (serves(Modality::kText) || serves(Modality::kVideo) || serves(Modality::kAction)) {
    description_.input_modalities.push_back(Modality::kImage);
    description_.input_modalities.push_back(Modality::kVideo);
  }
  std::vector<RequestParameter> parameters = generation_parameters(config_);
  defaults_ = RequestDefaults::load(config_.folder, parameters);
  if (serves(Modality::kText)) {
    reasoner_ = std::make_unique<ReasonerFrontEnd>(
        config_, prompts_, description_.max_model_len, options_.max_concurrent_requests);
    for (RequestParameter& parameter : ReasonerFrontEnd::parameters()) {
      // The seed serves both.
      if (std::ranges::find(parameters, parameter.name, &RequestParameter::name) ==
          parameters.end()) {
        parameters.push_back(std::move(parameter));
      }
    }
  }
  description_.parameters = ParameterTable(std::move(parameters));
  description_.config = config_.to_json();
}

bool Cosmos3Model::serves(Modality modality) const {
  return std::ranges::find(description_.output_modalities, modality) !=
         description_.output_modalities.end();
}

graph::ModelGraph Cosmos3Model::get_graph_walk_graphs() const {
  graph::ModelGraph out;
  add_generation_walks(description_.output_modalities, config_, out);
  if (reasoner_ != nullptr) {
    reasoner_->add_walks(out);
  }
  if (serves(Modality::kVideo) && !config_.is_distilled()) {
    add_window_walks(out);
  }
  return out;
}

std::vector<std::string> Cosmos3Model::get_labels() const {
  return {"main", "uncond", "_cfg_batched", "reasoner"};
}

std::vector<NodeResourceSpec> Cosmos3Model::get_node_resources() const {
  const TransformerConfig& transformer = config_.transformer;
  // Two branches of a common prompt for every request, or one pair of the longest prompts.
  constexpr int64_t kCommonPages = 2;
  const int64_t longest = (kMaxTextTokens + kPageSize - 1) / kPageSize;
  const int64_t pages = 2 * std::max(longest, kCommonPages * options_.max_concurrent_requests) + 1 +
                        captures().num_pages(transformer.latent_patch_size, kPageSize);
  const KVSpec kv{.num_layers = transformer.num_hidden_layers,
                  .num_kv_heads = transformer.num_key_value_heads,
                  .head_dim = transformer.head_dim,
                  .page_size = kPageSize,
                  .max_num_pages = pages,
                  .dtype = DType::kF32,
                  .follows_activations = true};
  std::vector<NodeResourceSpec> resources = {
      {"kv", {"dit"}, kv},
      {"attn", {"dit"}, AttentionSpec{.kind = AttentionKind::kRagged}},
      {"attn_gen", {"dit"}, AttentionSpec{.kind = AttentionKind::kDense, .kv = "kv"}},
      {"attn_commit", {"dit"}, AttentionSpec{.kind = AttentionKind::kPaged, .kv = "kv"}},
  };
  if (reasoner_ != nullptr) {
    reasoner_->add_resources(resources);
  }
  return resources;
}

// Only pictures' steps are captured.
DitCaptures Cosmos3Model::captures() const {
  return serves(Modality::kImage) ? options_.captures : DitCaptures();
}

DType Cosmos3Model::default_activation_dtype() const {
  constexpr int64_t kSmallestWorthIt = 1024;  // hidden size; recorded and toy models are exact
  const bool multiplies_bf16 = active_isa() >= Isa::kAvx512Bf16;
  return multiplies_bf16 && config_.transformer.hidden_size >= kSmallestWorthIt ? DType::kBF16
                                                                                : DType::kF32;
}

std::shared_ptr<const Transformer> Cosmos3Model::share_transformer(const LoadContext& context) {
  std::shared_ptr<const Transformer> known = transformer_.lock();
  if (known == nullptr) {
    FinalizeOptions options = finalize_options(context);
    if (context.quantization == "int8") {
      options.weight_format = WeightFormat::kInt8;
    }
    auto transformer = std::make_shared<Transformer>(config_.transformer, reasoner_ != nullptr);
    transformer->load(*open_checkpoint(config_.transformer_folder()), options);
    transformer_ = transformer;
    known = std::move(transformer);
  }
  return known;
}

std::unique_ptr<NodeSubmodule> Cosmos3Model::get_submodule(std::string_view node,
                                                           const LoadContext& context) {
  const FinalizeOptions options = finalize_options(context);
  const DType dtype = context.activation_dtype;
  if (node == "dit") {
    return std::make_unique<Cosmos3DiTSubmodule>(
        share_transformer(context), config_.vae.scale_factor_temporal, dtype, captures());
  }
  if (node == "reasoner" && reasoner_ != nullptr) {
    return std::make_unique<Cosmos3ReasonerSubmodule>(share_transformer(context), dtype);
  }
  if (node == "vision_encoder" && reasoner_ != nullptr) {
    auto vision = std::make_unique<VisionEncoder>(config_.reasoner->vision);
    vision->load(*open_checkpoint(config_.vision_folder()));
    return std::make_unique<Cosmos3VisionEncoderSubmodule>(std::move(vision), options, dtype);
  }
  if (node == "vae_encoder") {
    auto vae = std::make_unique<VaeEncoder>(config_.vae, dtype);
    vae->load(*open_checkpoint(config_.vae_folder()), options);
    return std::make_unique<Cosmos3VAEEncoderSubmodule>(std::move(vae),
                                                        conditioning_resize(config_));
  }
  if (node == "vae_decoder") {
    return std::make_unique<Cosmos3VAEDecoderSubmodule>(load_vae_decoder(context));
  }
  if (node == "vae_decoder_ar") {
    return std::make_unique<Cosmos3VAEDecoderARSubmodule>(load_vae_decoder(context), sessions_);
  }
  if (node == "audio_decoder" && config_.can_make_sound()) {
    auto sound = std::make_unique<SoundDecoder>(*config_.sound, dtype);
    sound->load(*open_checkpoint(config_.sound_folder()), options);
    return std::make_unique<Cosmos3AudioDecoderSubmodule>(std::move(sound));
  }
  throw Error(ErrorCode::kInvalidArgument, str_cat("[cosmos3] no node \"", node, "\""));
}

std::shared_ptr<const VaeDecoder> Cosmos3Model::load_vae_decoder(const LoadContext& context) {
  std::shared_ptr<const VaeDecoder> known = vae_decoder_.lock();
  if (known == nullptr) {
    auto vae = std::make_shared<VaeDecoder>(config_.vae, context.activation_dtype);
    vae->load(*open_checkpoint(config_.vae_folder()), finalize_options(context));
    vae_decoder_ = vae;
    known = std::move(vae);
  }
  return known;
}

// The video that a request goes on with; null for one that starts anew.
WindowSessionPtr Cosmos3Model::find_session(const Json& parameters) const {
  const Json* resume = parameters.find("resume_session");
  if (resume == nullptr || !resume->get_bool()) {
    return nullptr;
  }
  const Json* id = parameters.find("session_id");
  if (id == nullptr || id->get_string().empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "[request] \"resume_session\": needs the session_id of the video to go on with");
  }
  WindowSessionPtr session = sessions_->find(id->get_string());
  if (session == nullptr) {
    throw Error(ErrorCode::kNotFound,
                str_cat("[request] \"resume_session\": no session \"",
                        id->get_string(),
                        "\"; it was never made, or others have taken its place"));
  }
  return session;
}

std::vector<MemoryItem> Cosmos3Model::memory_plan(const std::vector<std::string>& nodes,
                                                  const LoadContext& context) const {
  const DType dtype = context.activation_dtype;
  std::vector<MemoryItem> plan;
  std::vector<std::string> served = nodes;
  if (served.empty()) {
    served = graph::compile(get_graph_walk_graphs()).nodes;
  }
  const auto hosts = [&](const char* node) {
    return std::ranges::find(served, node) != served.end();
  };
  if (hosts("vision_encoder")) {
    plan.push_back(
        {"vision encoder weights", part_bytes(config_.vision_folder(), {"model."}, dtype)});
  }
  if (hosts("dit") || hosts("reasoner")) {  // they share it
    plan.push_back({"dit weights",
                    transformer_bytes(config_.transformer_folder(),
                                      reasoner_ != nullptr,
                                      context.quantization == "int8",
                                      dtype)});
  }
  if (hosts("vae_encoder")) {
    plan.push_back({"vae encoder weights",
                    part_bytes(config_.vae_folder(), {"encoder.", "quant_conv."}, dtype)});
  }
  if (hosts("vae_decoder") || hosts("vae_decoder_ar")) {  // they share it
    plan.push_back({"vae decoder weights",
                    part_bytes(config_.vae_folder(), {"decoder.", "post_quant_conv."}, dtype)});
  }
  if (hosts("audio_decoder") && config_.can_make_sound()) {
    plan.push_back(
        {"sound decoder weights", part_bytes(config_.sound_folder(), {"decoder."}, dtype)});
  }
  if (const int64_t activations = activation_bytes(served, context.activation_dtype)) {
    plan.push_back({"activations", activations});
  }
  return plan;
}

// Of the larger of a picture and a video of the usual sizes, as far as the caps allow them: its
// step and its decoding come one after the other, but what either allocated is kept for the next.
int64_t Cosmos3Model::activation_bytes(const std::vector<std::string>& nodes, DType dtype) const {
  const auto hosts = [&](const char* node) {
    return std::ranges::find(nodes, node) != nodes.end();
  };
  std::vector<MadeSize> sizes;
  for (const Modality made : {Modality::kImage, Modality::kVideo}) {
    if (serves(made)) {
      MadeSize size = usual_size(config_, made);
      const MediaCaps& caps = options_.media;
      while (size.width * size.height > caps.max_image_pixels && size.height > 16) {
        size.width = std::max<int64_t>(size.width / 2, 16);
        size.height = std::max<int64_t>(size.height / 2, 16);
      }
      size.num_frames = std::min(size.num_frames, caps.max_video_frames);
      sizes.push_back(size);
    }
  }
  int64_t most = 0;
  for (const MadeSize& size : sizes) {
    int64_t bytes = 0;
    if (hosts("dit")) {
      bytes += step_bytes(config_.transformer, config_.vae, size, dtype);
    }
    if (hosts("vae_decoder") || hosts("vae_decoder_ar")) {
      bytes += decode_bytes(config_.vae, size, dtype);
    }
    most = std::max(most, bytes);
  }
  return most;
}

PreparedRequest Cosmos3Model::process_prompt(const ModelRequest& request) const {
  Modality output = Modality::kImage;
  for (const Modality modality : {Modality::kVideo, Modality::kAction}) {
    if (wants(request, modality)) {
      output = modality;
    }
  }
  if (wants(request, Modality::kAudio)) {  // sound comes with its video
    output = Modality::kVideo;
  }
  for (const MediaItem& item : request.media) {
    if (item.modality == Modality::kImage) {
      options_.media.check_picture(item);
    } else if (item.modality == Modality::kVideo) {
      options_.media.check_film(item);
    }
  }
  const bool talks = wants(request, Modality::kText);
  if (talks && reasoner_ == nullptr) {
    throw Error(ErrorCode::kUnsupported, "[request] this model makes no text");
  }
  const bool generates = !talks || request.output_modalities.size() > 1;
  const Json& asked = request.parameters;
  Json parameters =
      description_.parameters.resolve(generates ? defaults_.fill(asked, output) : asked);
  if (wants(request, Modality::kAudio)) {
    parameters.set("generate_sound", true);
  }
  PreparedRequest out;
  out.request_id = request.request_id;
  out.random_seed = seed_of(parameters, request.request_id);
  out.output_modalities = request.output_modalities;
  if (talks) {
    reasoner_->prepare(request, parameters, out);
  }
  if (generates) {
    prepare_generation(talks ? generation_of(request, output) : request, output, parameters, out);
  }
  for (const auto& [name, value] : parameters.get_object()) {
    if (name != "noise" && name != "action") {  // megabytes that the plan holds already
      out.step_metadata.set(name, value);
    }
  }
  return out;
}

// What a generation needs, beside what a conversation before it has put into `out`.
void Cosmos3Model::prepare_generation(const ModelRequest& request,
                                      Modality output,
                                      const Json& parameters,
                                      PreparedRequest& out) const {
  const RequestMedia media(request);
  if (output == Modality::kImage && media.is_given()) {
    throw Error(
        ErrorCode::kUnsupported,
        "[request] this model makes images from text alone: it edits none; with an image or "
        "a video it makes videos");
  }
  Conditioning conditioning = media.conditioning();
  conditioning.session = find_session(parameters);
  const GenRequestPtr plan = plan_request(
      config_, prompts_, prompt_of(request), parameters, output, conditioning, out.random_seed);
  check_outputs(request, *plan, description_.output_modalities);
  options_.media.check_made(plan->width, plan->height, plan->num_frames);
  auto num_tokens = static_cast<int64_t>(std::max(plan->cond_ids.size(), plan->uncond_ids.size()));
  KVRequestConfig kv;
  const bool talks = ReasonerFrontEnd::is_conversation(out);
  if (talks) {
    kv = std::get<KVRequestConfig>(out.resource_configs.at("kv"));
    kv.needed_labels.push_back(kCondLabel);
    num_tokens = plan->prompt_options.max_sequence_length + 2;  // the answer is not known yet
  } else {
    out.num_prompt_tokens = static_cast<int64_t>(plan->cond_ids.size());
    out.inputs.set("text_inputs", Tensor::from(plan->cond_ids, {out.num_prompt_tokens}));
    out.input_modalities = {Modality::kText};
  }
  if (const Tensor frames = media.frames(*plan); frames.defined()) {
    out.inputs.set(media.is_video() ? "video_inputs" : "image_inputs", frames);
    if (!talks) {
      out.input_modalities.push_back(media.is_video() ? Modality::kVideo : Modality::kImage);
    }
  }
  if (plan->windows) {
    const GenLayout& layout = plan->plan.layout;
    num_tokens += max_committed_tokens(
        *plan->windows, layout.tokens_per_frame(config_.transformer.latent_patch_size), kPageSize);
  }
  if (plan->has_guidance()) {
    kv.needed_labels.push_back(kUncondLabel);
  }
  kv.max_tokens = std::max(kv.max_tokens, num_tokens);
  out.resource_configs["kv"] = std::move(kv);
  out.values.set(kGenRequest, plan);
}

ForwardPassArgs Cosmos3Model::get_initial_forward_pass_args(RequestProgress& progress) const {
  const GenRequestPtr* generation = progress.request.values.find<GenRequestPtr>(kGenRequest);
  if (progress.partition == kWindowDecoder) {
    ForwardPassArgs args;
    args.request_done = generation == nullptr || !(*generation)->windows;
    args.graph_walk = kWindowDecodeWalk;
    return args;
  }
  if (ReasonerFrontEnd::is_conversation(progress.request)) {
    return reasoner_->first_walk(progress);
  }
  return start_generation(progress);
}

// The walk that reads the prompt of a generation, and a picture that it starts from.
ForwardPassArgs Cosmos3Model::start_generation(RequestProgress& progress) const {
  const GenRequest& request = *progress.request.values.at<GenRequestPtr>(kGenRequest);
  ForwardPassArgs args;
  args.graph_walk = "prefill";
  args.requires_cfg = request.has_guidance();
  if (ReasonerFrontEnd::is_conversation(progress.request)) {
    // The answer is the prompt; a conversation without one leaves the client's own.
    auto answered = std::make_shared<GenRequest>(request);
    if (const std::string answer = reasoner_->answer_of(progress); !answer.empty()) {
      answered->cond_ids = prompts_.encode(answer, request.prompt_options, false);
    }
    args.inputs.set(
        "text_inputs",
        Tensor::from(answered->cond_ids, {static_cast<int64_t>(answered->cond_ids.size())}));
    args.values.set(kGenRequest, GenRequestPtr(std::move(answered)));
    args.unpersist = {"new_token", "answer_tokens"};
  } else {
    args.inputs.set("text_inputs", progress.persist_signals.at("text_inputs"));
    args.unpersist = {"text_inputs"};
  }
  for (const auto& [walk, input] : {std::pair{"prefill_cond_video", "video_inputs"},
                                    std::pair{"prefill_cond", "image_inputs"}}) {
    if (const TensorList* frames = progress.persist_signals.find(input);
        frames != nullptr && request.num_condition_frames > 0) {
      args.graph_walk = walk;
      args.inputs.set(input, *frames);
      args.unpersist.emplace_back(input);
      break;
    }
  }
  return args;
}

ForwardPassArgs Cosmos3Model::get_partition_forward_pass_args(RequestProgress& progress) const {
  const GenRequestPtr* generation = progress.request.values.find<GenRequestPtr>(kGenRequest);
  if (progress.graph_walk.starts_with("reasoner_")) {
    ForwardPassArgs args = reasoner_->next_walk(progress);
    return args.request_done && generation != nullptr ? start_generation(progress) : args;
  }
  const GenRequest& request = **generation;
  ForwardPassArgs args;
  if (progress.partition == kWindowDecoder) {  // once more for every window, until the stream ends
    args.graph_walk = kWindowDecodeWalk;
    return args;
  }
  if (!progress.graph_walk.starts_with("prefill")) {
    args.request_done = true;
    args.unpersist = {"cond_latents"};
    return args;
  }
  args.graph_walk = request.walk;
  args.requires_cfg = request.has_guidance();
  for (const std::string& name :
       gen_inputs(request.plan.layout.num_sound > 0, request.plan.layout.num_actions > 0)) {
    args.inputs.set(name, TensorList{});  // the node draws the first values itself
  }
  if (const TensorList* anchor = progress.persist_signals.find("cond_latents")) {
    args.inputs.set("cond_latents", *anchor);
  }
  args.loop_limits = {{std::string(loop_of(request.walk)), request.num_iterations()}};
  return args;
}

std::unique_ptr<OutputStream> Cosmos3Model::make_output_stream(
    const PreparedRequest& request) const {
  std::unique_ptr<OutputStream> text;
  if (ReasonerFrontEnd::is_conversation(request)) {
    text = reasoner_->make_output_stream(request);
  }
  const GenRequestPtr* generation = request.values.find<GenRequestPtr>(kGenRequest);
  if (generation == nullptr) {
    return text;
  }
  VideoOutput video;
  video.streams = (*generation)->windows && (*generation)->windows->stream_video;
  const Json* format = request.step_metadata.find("video_format");
  video.as_mp4 = format != nullptr ? format->get_string() == "mp4" : !video.streams;
  if (config_.sound) {
    video.sampling_rate = config_.sound->sampling_rate;
    video.num_channels = config_.sound->dec_out_channels;
  }
  auto media = std::make_unique<GenOutputStream>(*generation, request.output_modalities, video);
  if (text == nullptr) {
    return media;
  }
  return std::make_unique<TextAndMediaStream>(std::move(text), std::move(media));
}

std::vector<int32_t> Cosmos3Model::tokenize(std::string_view text, bool) const {
  return prompts_.text().encode_text(text);
}

}  // namespace mstar::cosmos3
