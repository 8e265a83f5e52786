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

namespace mstar::cosmos3 {

namespace {

namespace fs = std::filesystem;

constexpr int kMaxInferenceSteps = 100;
constexpr int kMaxWindowIterations = static_cast<int>(kMaxWindows) * (kMaxInferenceSteps + 1);
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

// The modalities a generation walk gives to the client.
std::vector<Modality> outputs_of(std::string_view walk) {
  if (walk == "image_gen") {
    return {Modality::kImage};
  }
  if (walk == "action_gen") {
    return {Modality::kAction};
  }
  if (walk == "video_sound_gen") {
    return {Modality::kVideo, Modality::kAudio};
  }
  return {Modality::kVideo};
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

// Matrices and filters of f32 become bf16 with bf16 activations.
int64_t loaded_bytes(const TensorInfo& tensor, DType activation_dtype) {
  const bool narrowed =
      activation_dtype == DType::kBF16 && tensor.dtype == DType::kF32 && tensor.shape.size() > 1;
  return static_cast<int64_t>(tensor.size_bytes) / (narrowed ? 2 : 1);
}

// Of the parts named so, as loaded: bf16 with bf16 activations.
int64_t bytes_of_prefixes(const std::string& folder,
                          std::initializer_list<std::string_view> prefixes,
                          DType activation_dtype) {
  int64_t total = 0;
  const auto checkpoint = open_checkpoint(folder);
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    const bool counts = std::ranges::any_of(prefixes, [&](std::string_view prefix) {
      return std::string_view(tensor.name).starts_with(prefix);
    });
    total += counts ? loaded_bytes(tensor, activation_dtype) : 0;
  }
  return total;
}

// As loaded: the language head only for a reasoner, and with int8 a byte for each number of the
// towers' matrices and a scale for each of their rows.
int64_t transformer_bytes(const std::string& folder,
                          bool with_head,
                          bool int8,
                          DType activation_dtype) {
  int64_t total = 0;
  const auto checkpoint = open_checkpoint(folder);
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    if (tensor.name == "lm_head.weight" && !with_head) {
      continue;
    }
    const bool quantized =
        int8 && tensor.shape.size() == 2 && std::string_view(tensor.name).starts_with("layers.");
    total += quantized ? tensor.shape.num_elements() + tensor.shape[0] * 4
                       : loaded_bytes(tensor, activation_dtype);
  }
  return total;
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

graph::Node dit_node(bool sound, bool actions) {
  using namespace graph;  // NOLINT: the words of a declaration
  std::vector<std::string> carried{"latents"};
  if (sound) {
    carried.emplace_back("sound_latents");
  }
  if (actions) {
    carried.emplace_back("action_latents");
  }
  carried.emplace_back("time_index");
  Node dit = node("dit");
  std::vector<std::string> needs = carried;
  needs.emplace_back("cond_latents");
  dit.needs(needs);
  for (const std::string& name : carried) {
    dit.makes(edge(name).to("dit"));
  }
  return dit;
}

std::vector<std::string> gen_inputs(bool sound, bool actions) {
  std::vector<std::string> inputs{"latents"};
  if (sound) {
    inputs.emplace_back("sound_latents");
  }
  if (actions) {
    inputs.emplace_back("action_latents");
  }
  inputs.emplace_back("time_index");
  inputs.emplace_back("cond_latents");
  return inputs;
}

// All windows of a video in one loop; a window's last step gives its latents to the decoder.
graph::Loop window_loop() {
  using namespace graph;  // NOLINT: the words of a declaration
  return loop(std::string(loop_of(kWindowWalk)),
              kMaxWindowIterations,
              dit_node(false, false)
                  .makes(edge(std::string(kWindowLatents))
                             .stream_to(std::string(kWindowDecoder), "vae_decoder_ar")));
}

graph::Loop denoise_loop(const char* walk, bool sound, bool actions) {
  return graph::loop(std::string(loop_of(walk)), kMaxInferenceSteps, dit_node(sound, actions));
}

graph::Node vae_decoder(const char* output, Modality modality) {
  return graph::node("vae_decoder")
      .needs({"latents"})
      .makes(graph::edge(output).to_client(modality));
}

graph::WalkGraph conditioned_prefill(const char* name, const char* input) {
  using namespace graph;  // NOLINT: the words of a declaration
  return walk(name,
              {"text_inputs", input},
              parallel(node("dit").needs({"text_inputs"}),
                       node("vae_encoder").needs({input}).makes(edge("cond_latents").kept())));
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
  using namespace graph;  // NOLINT: the words of a declaration
  ModelGraph out;
  if (serves(Modality::kImage) || serves(Modality::kVideo) || serves(Modality::kAction)) {
    out.walks.push_back(walk("prefill", {"text_inputs"}, node("dit").needs({"text_inputs"})));
  }
  if (serves(Modality::kVideo) || serves(Modality::kAction)) {
    out.walks.push_back(conditioned_prefill("prefill_cond", "image_inputs"));
    out.walks.push_back(conditioned_prefill("prefill_cond_video", "video_inputs"));
  }
  if (serves(Modality::kImage)) {
    out.walks.push_back(walk(
        "image_gen",
        gen_inputs(false, false),
        denoise_loop("image_gen", false, false).gives("latents", edge("latents").to("vae_decoder")),
        vae_decoder("image_output", Modality::kImage)));
  }
  if (serves(Modality::kVideo)) {
    out.walks.push_back(walk(
        "video_gen",
        gen_inputs(false, false),
        denoise_loop("video_gen", false, false).gives("latents", edge("latents").to("vae_decoder")),
        vae_decoder("video_output", Modality::kVideo)));
  }
  if (serves(Modality::kAudio)) {
    out.walks.push_back(
        walk("video_sound_gen",
             gen_inputs(true, false),
             denoise_loop("video_sound_gen", true, false)
                 .gives("latents", edge("latents").to("vae_decoder"))
                 .gives("sound_latents", edge("sound_latents").to("audio_decoder")),
             parallel(vae_decoder("video_output", Modality::kVideo),
                      node("audio_decoder")
                          .needs({"sound_latents"})
                          .makes(edge("audio_output").to_client(Modality::kAudio)))));
  }
  if (serves(Modality::kAction)) {
    out.walks.push_back(
        walk("action_gen",
             gen_inputs(false, true),
             denoise_loop("action_gen", false, true)
                 .gives("action_latents", edge("action_latents").to_client(Modality::kAction))));
  }
  if (serves(Modality::kVideo) && config_.transformer.action_gen) {
    out.walks.push_back(walk("action_video_gen",
                             gen_inputs(false, true),
                             denoise_loop("action_video_gen", false, true)
                                 .gives("latents", edge("latents").to("vae_decoder")),
                             vae_decoder("video_output", Modality::kVideo)));
  }
  if (reasoner_ != nullptr) {
    reasoner_->add_walks(out);
  }
  if (serves(Modality::kVideo) && !config_.is_distilled()) {
    out.walks.push_back(walk(std::string(kWindowWalk), gen_inputs(false, false), window_loop()));
    std::vector<std::string> own;
    for (const WalkGraph& one : out.walks) {
      own.push_back(one.name);
    }
    out.walks.push_back(walk(std::string(kWindowDecodeWalk),
                             {},
                             node("vae_decoder_ar")
                                 .needs_stream(std::string(kWindowLatents))
                                 .makes(edge("video_output").to_client(Modality::kVideo))));
    out.topology = {.partitions = {{"main", own},
                                   {std::string(kWindowDecoder), {std::string(kWindowDecodeWalk)}}},
                    .connections = {{"main",
                                     std::string(kWindowDecoder),
                                     std::string(kWindowLatents),
                                     ChunkPolicy::fixed(1)}}};
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
        {"vision encoder weights", bytes_of_prefixes(config_.vision_folder(), {"model."}, dtype)});
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
                    bytes_of_prefixes(config_.vae_folder(), {"encoder.", "quant_conv."}, dtype)});
  }
  if (hosts("vae_decoder") || hosts("vae_decoder_ar")) {  // they share it
    plan.push_back(
        {"vae decoder weights",
         bytes_of_prefixes(config_.vae_folder(), {"decoder.", "post_quant_conv."}, dtype)});
  }
  if (hosts("audio_decoder") && config_.can_make_sound()) {
    plan.push_back(
        {"sound decoder weights", bytes_of_prefixes(config_.sound_folder(), {"decoder."}, dtype)});
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
