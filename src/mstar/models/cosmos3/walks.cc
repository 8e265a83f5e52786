#include "mstar/models/cosmos3/walks.h"

#include <algorithm>

#include "mstar/models/cosmos3/dit_submodule.h"
#include "mstar/models/cosmos3/window_plan.h"

namespace mstar::cosmos3 {

namespace {

constexpr int kMaxInferenceSteps = 100;
constexpr int kMaxWindowIterations = static_cast<int>(kMaxWindows) * (kMaxInferenceSteps + 1);

// A step: all that a generation carries goes in and comes out for the next, but the condition.
graph::Node dit_node(bool sound, bool actions) {
  using namespace graph;  // NOLINT: the words of a declaration
  const std::vector<std::string> inputs = gen_inputs(sound, actions);
  Node dit = node("dit").needs(inputs);
  for (const std::string& name : inputs) {
    if (name != "cond_latents") {
      dit.makes(edge(name).to("dit"));
    }
  }
  return dit;
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

// Steps whose latents are decoded for the client.
graph::WalkGraph decoded(const char* name, const char* output, Modality modality, bool actions) {
  return graph::walk(
      name,
      gen_inputs(false, actions),
      denoise_loop(name, false, actions).gives("latents", graph::edge("latents").to("vae_decoder")),
      vae_decoder(output, modality));
}

}  // namespace

void add_generation_walks(const std::vector<Modality>& served,
                          const Cosmos3Config& config,
                          graph::ModelGraph& out) {
  const auto serves = [&](Modality modality) {
    return std::ranges::find(served, modality) != served.end();
  };
  using namespace graph;  // NOLINT: the words of a declaration
  if (serves(Modality::kImage) || serves(Modality::kVideo) || serves(Modality::kAction)) {
    out.walks.push_back(walk("prefill", {"text_inputs"}, node("dit").needs({"text_inputs"})));
  }
  if (serves(Modality::kVideo) || serves(Modality::kAction)) {
    out.walks.push_back(conditioned_prefill("prefill_cond", "image_inputs"));
    out.walks.push_back(conditioned_prefill("prefill_cond_video", "video_inputs"));
  }
  if (serves(Modality::kImage)) {
    out.walks.push_back(decoded("image_gen", "image_output", Modality::kImage, false));
  }
  if (serves(Modality::kVideo)) {
    out.walks.push_back(decoded("video_gen", "video_output", Modality::kVideo, false));
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
  if (serves(Modality::kVideo) && config.transformer.action_gen) {
    out.walks.push_back(decoded("action_video_gen", "video_output", Modality::kVideo, true));
  }
}

void add_window_walks(graph::ModelGraph& out) {
  using namespace graph;  // NOLINT: the words of a declaration
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

}  // namespace mstar::cosmos3
