// Cosmos3 with bf16 activations: how far from f32, and that batches and seeds hold there too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mstar/base/str_cat.h"
#include "mstar/cli/cosmos3_test_server.h"
#include "mstar/models/cosmos3/codec_submodules.h"
#include "mstar/models/cosmos3/pipeline.h"

namespace mstar {
namespace {

using namespace cosmos3;       // NOLINT: the family under test
using namespace cosmos3_test;  // NOLINT: the rig

// Root of the mean square of the difference over that of `want`.
double relative_rms(const Tensor& got, const Tensor& want) {
  const std::vector<float> a = got.to_floats();
  const std::vector<float> b = want.to_floats();
  double difference = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2.0);
    size += std::pow(static_cast<double>(b[i]), 2.0);
  }
  return std::sqrt(difference / size);
}

struct Made {
  GenState state;
  Tensor pixels;
  Tensor wave;
};

Made make(const std::string& name, DType dtype, float guidance_scale) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  const Pipeline pipeline(checkpoint(name), pool, dtype);
  Pipeline::Request request;
  request.cond_ids = pipeline.prompt().encode("a dog on the grass", {}, false);
  request.uncond_ids = pipeline.prompt().encode("blurry", {}, true);
  GenLayout& layout = request.plan.layout;
  layout.frames = 3;
  layout.latent_height = 4;
  layout.latent_width = 6;
  layout.fps = 24.0;
  layout.clean_frames = {true, false, false};
  layout.num_sound = pipeline.sound() != nullptr ? 7 : 0;
  request.plan.guidance = {.scale = guidance_scale};
  request.plan.schedule =
      make_schedule(pipeline.config(), 4, 3.0, pipeline.config().scheduler.use_karras_sigmas);
  request.start = draw_noise(pipeline.config().transformer, layout, 7);
  Tensor picture = Tensor::empty({1, 64, 96, 3}, DType::kF32);
  for (int64_t i = 0; i < picture.num_elements(); ++i) {
    picture.data<float>()[i] = std::sin(0.01F * static_cast<float>(i));
  }
  const Tensor encoded = pipeline.encoder().encode(stream, picture);
  request.anchor = place_anchor(encoded, layout);
  Made made;
  const GenState state = pipeline.run(stream, request);  // the stream's memory
  VaeCache cache;
  made.pixels = pipeline.decoder().decode(stream, state.vision, cache).copy();
  made.state.vision = state.vision.copy();
  if (layout.num_sound > 0) {
    made.state.sound = state.sound.copy();
    made.wave = pipeline.sound()->decode(stream, state.sound).copy();
  }
  return made;
}

// Toy models of random weights are no kinder than published ones: nothing averages out over 64
// channels, and guidance multiplies what the branches differ by.
TEST(Cosmos3Bf16, StaysNearF32) {
  for (const char* name : {"nano", "edge"}) {
    const Made want = make(name, DType::kF32, 3.0F);
    const Made got = make(name, DType::kBF16, 3.0F);
    const auto near = [&](const char* what, const Tensor& a, const Tensor& b, double bound) {
      EXPECT_EQ(a.dtype(), DType::kF32);
      const double distance = relative_rms(a, b);
      RecordProperty(what, std::to_string(distance));
      EXPECT_LT(distance, bound) << name << " " << what;
      EXPECT_GT(distance, 1e-5) << name << " " << what << ": that was no bf16";
    };
    near("latents", got.state.vision, want.state.vision, 0.03);
    near("pixels", got.pixels, want.pixels, 0.08);
    if (want.wave.defined()) {
      near("sound latents", got.state.sound, want.state.sound, 0.03);
      near("wave", got.wave, want.wave, 0.08);
    }
  }
}

RuntimeOptions in_bf16() {
  RuntimeOptions options{.num_threads = 2};
  options.engine.activation_dtype = DType::kBF16;
  return options;
}

const char* const kSmallImage =
    R"({"size":"96x64","num_inference_steps":3,"seed":7,"negative_prompt":"blurry"})";

TEST(Cosmos3Bf16, TheSameSeedGivesTheSameBytesInAnyCompany) {
  Served served(checkpoint("nano"), in_bf16());
  const auto alone = served.get({.parameters = kSmallImage});
  ASSERT_FALSE(alone->failed) << alone->message;
  std::vector<std::shared_ptr<Answer>> company;
  company.push_back(served.ask({.parameters = kSmallImage}));
  for (const char* size : {"64x64", "96x64", "128x64"}) {
    company.push_back(served.ask(
        {.prompt = "waves",
         .parameters = str_cat(R"({"size":")", size, R"(","num_inference_steps":4,"seed":3})")}));
  }
  for (const auto& answer : company) {
    answer->wait();
    ASSERT_FALSE(answer->failed) << answer->message;
  }
  EXPECT_EQ(company.front()->chunks[0].data, alone->chunks[0].data);
  Served exact(checkpoint("nano"));
  EXPECT_NE(exact.get({.parameters = kSmallImage})->chunks[0].data, alone->chunks[0].data);
}

TEST(Cosmos3Bf16, FilmsWithSoundAndActions) {
  Served served(checkpoint("nano"), in_bf16());
  const Question film{.parameters = R"({"size":"64x48","num_frames":5,"num_inference_steps":2,)"
                                    R"("seed":1,"generate_sound":true})",
                      .output = graph::Modality::kVideo};
  const auto first = served.get(film);
  ASSERT_FALSE(first->failed) << first->message;
  const auto again = served.get(film);
  ASSERT_EQ(first->chunks.size(), again->chunks.size());
  EXPECT_EQ(first->chunks[0].data, again->chunks[0].data);
  const auto actions = served.get({.parameters = R"({"size":"64x48","action_mode":"policy",)"
                                                 R"("domain_name":"av","raw_action_dim":8,)"
                                                 R"("num_inference_steps":2,"seed":1})",
                                   .output = graph::Modality::kAction,
                                   .picture = picture(48, 64)});
  ASSERT_FALSE(actions->failed) << actions->message;
}

// The pool holds what the rows are: half the bytes.
TEST(Cosmos3Bf16, KeysAndValuesFollowTheActivations) {
  const auto model = open_model(checkpoint("nano"), Json::object());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    NodeResourceSpec spec = model->get_node_resources().front();
    follow_activations(dtype, spec.spec);
    EXPECT_EQ(std::get<KVSpec>(spec.spec).dtype, dtype);
  }
  EXPECT_EQ(model->default_activation_dtype(), DType::kF32);  // toy models are exact
}

}  // namespace
}  // namespace mstar
