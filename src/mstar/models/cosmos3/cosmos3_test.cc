// Configuration, names, positions, schedules and requests; numbers against the reference are in
// mstar_golden.
#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/models/cosmos3/gen_request.h"
#include "mstar/models/cosmos3/sound.h"
#include "mstar/models/cosmos3/transformer.h"
#include "mstar/models/cosmos3/vae.h"

namespace mstar::cosmos3 {
namespace {

const std::string kCheckpoints = MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/";

Json config_of(const std::string& file) {
  return read_json_file(kCheckpoints + file);
}

// Elements of all parameters.
int64_t num_parameters(Module& module) {
  int64_t count = 0;
  for (const LoadTarget& target : module.load_targets()) {
    for (const ShardSpec& shard : target.parameter->shards()) {
      count += shard.shape.num_elements();
    }
  }
  return count;
}

template <typename Config>
std::string parse_error(const Json& json) {
  try {
    Config::parse(json, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void set_sizes(Json& json,
               int64_t hidden,
               int64_t layers,
               int64_t heads,
               int64_t inner,
               int64_t vocab) {
  json.set("hidden_size", hidden);
  json.set("num_hidden_layers", layers);
  json.set("num_attention_heads", heads);
  json.set("intermediate_size", inner);
  json.set("vocab_size", vocab);
  json.set("num_key_value_heads", 8);
  json.set("head_dim", 128);
  json.set("latent_channel", 48);
  json.set("patch_latent_dim", 192);
  json.set("rope_axes_dim", Json(Json::Array{24, 20, 20}));
  json.set("action_dim", 64);
  json.set("num_embodiment_domains", 32);
}

TEST(Cosmos3Config, NanoAtItsPublishedSize) {
  Json json = config_of("nano/transformer/config.json");
  set_sizes(json, 4096, 36, 32, 12288, 151936);
  json.set("sound_dim", 64);
  Transformer transformer(TransformerConfig::parse(json, "nano"));
  EXPECT_EQ(transformer.load_targets().size(), 813U);  // all but lm_head
  EXPECT_EQ(num_parameters(transformer), 15173669120 - 622329856);
}

TEST(Cosmos3Config, EdgeAtItsPublishedSize) {
  Json json = config_of("edge/transformer/config.json");
  set_sizes(json, 2048, 28, 16, 9216, 131072);
  Transformer transformer(TransformerConfig::parse(json, "edge"));
  EXPECT_EQ(transformer.load_targets().size(), 548U);
  EXPECT_EQ(num_parameters(transformer), 3369657024 - 268435456);
}

TEST(Cosmos3Config, CodecsAtTheirPublishedSizes) {
  Json vae = config_of("nano/vae/config.json");
  vae.set("base_dim", 160);
  vae.set("decoder_base_dim", 256);
  vae.set("z_dim", 48);
  vae.set("latents_mean", Json(Json::Array(48, Json(0.0))));
  vae.set("latents_std", Json(Json::Array(48, Json(1.0))));
  const VaeConfig config = VaeConfig::parse(vae, "vae");
  VaeEncoder encoder(config);
  VaeDecoder decoder(config);
  EXPECT_EQ(encoder.load_targets().size() + decoder.load_targets().size(), 196U);
  EXPECT_EQ(num_parameters(encoder) + num_parameters(decoder), 704688668);
  Json sound = config_of("nano/sound_tokenizer/config.json");
  sound.set("vocoder_input_dim", 64);
  sound.set("dec_dim", 320);
  sound.set("dec_c_mults", Json(Json::Array{1, 2, 4, 8, 16}));
  sound.set("dec_strides", Json(Json::Array{2, 4, 5, 6, 8}));
  SoundDecoder sound_decoder(SoundConfig::parse(sound, "sound"));
  EXPECT_EQ(num_parameters(sound_decoder), 473097282);
  EXPECT_EQ(SoundConfig::parse(sound, "sound").hop_size(), 1920);
}

TEST(Cosmos3Config, ErrorsNameTheField) {
  const Json good = config_of("nano/transformer/config.json");
  for (const char* key : {"hidden_size", "rope_theta", "rms_norm_eps", "qk_norm_for_text"}) {
    Json bad = good;
    bad.set(key, nullptr);
    EXPECT_NE(parse_error<TransformerConfig>(bad).find(key), std::string::npos) << key;
  }
  Json bad = good;
  bad.set("num_attention_heads", 3);
  EXPECT_NE(parse_error<TransformerConfig>(bad).find("num_attention_heads"), std::string::npos);
  bad = good;
  bad.set("rope_axes_dim", Json(Json::Array{4, 2, 1}));
  EXPECT_NE(parse_error<TransformerConfig>(bad).find("rope_axes_dim"), std::string::npos);
  bad = config_of("nano/vae/config.json");
  bad.set("latents_std", Json(Json::Array{1.0}));
  EXPECT_NE(parse_error<VaeConfig>(bad).find("latents_std"), std::string::npos);
  bad = config_of("nano/scheduler/scheduler_config.json");
  bad.set("solver_order", 3);
  EXPECT_NE(parse_error<SchedulerConfig>(bad).find("solver_order"), std::string::npos);
}

TEST(Cosmos3Packing, ClipsDecodeToFourFramesALatent) {
  const VaeConfig config = VaeConfig::parse(config_of("nano/vae/config.json"), "vae");
  EXPECT_EQ(config.latent_frames(1), 1);
  EXPECT_EQ(config.latent_frames(4), 1);
  EXPECT_EQ(config.latent_frames(189), 48);
  EXPECT_EQ(config.pixel_frames(48), 189);
}

TEST(Cosmos3Schedule, NativeGridLeavesTheEndOut) {
  const std::vector<double> sigmas = native_flow_sigmas(4, 1000);
  ASSERT_EQ(sigmas.size(), 4U);
  EXPECT_DOUBLE_EQ(sigmas[0], 0.999);
  EXPECT_DOUBLE_EQ(sigmas[3], 0.999 / 4);
}

TEST(Cosmos3Noise, DependsOnSeedAndStreamAlone) {
  const Shape shape{3, 5, 7};
  const std::vector<float> values = gaussian_noise(shape, 1, 0).to_floats();
  EXPECT_EQ(gaussian_noise(shape, 1, 0).to_floats(), values);
  EXPECT_NE(gaussian_noise(shape, 2, 0).to_floats(), values);
  EXPECT_NE(gaussian_noise(shape, 1, 1).to_floats(), values);
  const std::vector<float> many = gaussian_noise({100000}, 9, 0).to_floats();
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : many) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(sum / 1e5, 0.0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1.0, 0.02);
}

class Cosmos3Plan : public ::testing::Test {
 protected:
  explicit Cosmos3Plan(const std::string& name = "nano")
      : config_(Cosmos3Config::load(kCheckpoints + name)),
        prompts_(PromptEncoder::load(config_.tokenizer_folder())) {}

  GenRequestPtr plan(const char* parameters, Modality wants, const Conditioning& media = {}) {
    const ParameterTable table(generation_parameters(config_));
    return plan_request(
        config_, prompts_, "a dog", table.resolve(Json::parse(parameters)), wants, media, 1);
  }

  Cosmos3Config config_;
  PromptEncoder prompts_;
};

class Cosmos3EdgePlan : public Cosmos3Plan {
 protected:
  Cosmos3EdgePlan() : Cosmos3Plan("edge") {}
};

TEST_F(Cosmos3Plan, DefaultsOfEveryMode) {
  const GenRequestPtr image = plan("{}", Modality::kImage);
  EXPECT_EQ(image->walk, "image_gen");
  EXPECT_EQ(image->width, 1024);
  EXPECT_EQ(image->plan.schedule.num_steps(), 50);
  EXPECT_EQ(image->plan.guidance.scale, 6.0F);
  EXPECT_EQ(image->plan.guidance.interval[0], 400.0);
  const GenRequestPtr video = plan("{}", Modality::kVideo);
  EXPECT_EQ(video->walk, "video_gen");
  EXPECT_EQ(video->plan.layout.frames, 5);  // 17 frames
  EXPECT_EQ(video->plan.schedule.num_steps(), 35);
  EXPECT_TRUE(video->plan.guidance.active_at(1.0F));
  const GenRequestPtr policy = plan(
      R"({"action_mode":"policy","domain_name":"av","raw_action_dim":9})", Modality::kAction, {1});
  EXPECT_EQ(policy->walk, "action_gen");
  EXPECT_EQ(policy->num_frames, 17);
  EXPECT_EQ(policy->plan.layout.num_actions, 16);
  EXPECT_EQ(policy->plan.layout.action_offset, 1);
  EXPECT_EQ(policy->width, 832);
  EXPECT_EQ(policy->plan.schedule.num_steps(), 30);
  EXPECT_TRUE(policy->uncond_ids.empty());
}

TEST_F(Cosmos3Plan, RefusesWhatNeverFits) {
  EXPECT_THROW(plan(R"({"size":"4096x4096","num_frames":121})", Modality::kVideo), Error);
  EXPECT_NO_THROW(plan(R"({"size":"1280x720","num_frames":189})", Modality::kVideo));
  EXPECT_THROW(
      plan(R"({"size":"64x64","num_frames":1000,"fps":1,"generate_sound":true})", Modality::kVideo),
      Error);
}

TEST_F(Cosmos3Plan, ConditioningFrames) {
  const GenRequestPtr picture = plan(R"({"num_frames":9})", Modality::kVideo, {1});
  EXPECT_EQ(picture->num_condition_frames, 1);
  EXPECT_EQ(picture->plan.layout.clean_frames, (std::vector<bool>{true, false, false}));
  const GenRequestPtr clip = plan(
      R"({"num_frames":9,"condition_frame_indexes_vision":"1,0,1"})", Modality::kVideo, {9, true});
  EXPECT_EQ(clip->num_condition_frames, 5);
  EXPECT_EQ(clip->plan.layout.clean_frames, (std::vector<bool>{true, true, false}));
  EXPECT_THROW(
      plan(R"({"num_frames":9,"condition_frame_indexes_vision":3})", Modality::kVideo, {9, true}),
      Error);
  EXPECT_THROW(
      plan(R"({"num_frames":9,"condition_frame_indexes_vision":"x"})", Modality::kVideo, {9, true}),
      Error);
}

TEST_F(Cosmos3Plan, GivenActionsRepeatTheLast) {
  const GenRequestPtr forward =
      plan(R"({"action_mode":"forward_dynamics","domain_id":4,"action_chunk_size":4,)"
           R"("action":[[1,2],[3,4]]})",
           Modality::kVideo,
           {1});
  EXPECT_EQ(forward->walk, "action_video_gen");
  EXPECT_EQ(forward->plan.raw_action_dim, 2);
  const std::vector<float> values = forward->given_actions.to_floats();
  const int64_t width = config_.transformer.action_dim;
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_EQ(values[static_cast<size_t>(3 * width + 1)], 4.0F);
  EXPECT_THROW(plan(R"({"action_mode":"forward_dynamics","domain_id":4,"action":[[1],[2,3]]})",
                    Modality::kVideo,
                    {1}),
               Error);
}

TEST_F(Cosmos3EdgePlan, DefaultsOfEdge) {
  EXPECT_EQ(plan("{}", Modality::kImage)->width, 640);
  const GenRequestPtr video = plan("{}", Modality::kVideo);
  EXPECT_EQ(video->width, 832);
  EXPECT_EQ(video->height, 480);
  EXPECT_EQ(video->num_frames, 121);
  ASSERT_EQ(video->plan.schedule.num_steps(), 20);
  EXPECT_NEAR(video->plan.schedule.sigmas[1], 0.9955462F, 1e-6);  // shift 12
  EXPECT_EQ(conditioning_resize(config_), ConditioningResize::kAspectCrop);
}

TEST(Cosmos3Guidance, EndsOfTheIntervalCount) {
  const Guidance guidance{.scale = 2.0F, .interval = {400.0, 1000.0}};
  EXPECT_TRUE(guidance.active_at(400.0F));
  EXPECT_TRUE(guidance.active_at(1000.0F));
  EXPECT_FALSE(guidance.active_at(399.0F));
  EXPECT_FALSE(Guidance{.scale = 1.0F}.active_at(500.0F));
}

}  // namespace
}  // namespace mstar::cosmos3
