// Cosmos3 checkpoints through runtime and service: what a client asks and gets.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "mstar/base/error.h"
#include "mstar/base/text_file.h"
#include "mstar/checkpoint/safetensors.h"
#include "mstar/cli/cosmos3_test_server.h"
#include "mstar/graph/compile.h"
#include "mstar/media/image.h"
#include "mstar/media/png.h"
#include "mstar/media/video.h"
#include "mstar/models/cosmos3/pipeline.h"
#include "mstar/models/cosmos3/vae_ops.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"
#include "mstar/server/encoding.h"
#include "mstar/tensor/compare.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

using namespace cosmos3_test;  // NOLINT: the rig

const char* const kSmallImage =
    R"({"size":"96x64","num_inference_steps":3,"seed":7,"negative_prompt":"blurry"})";

TEST(Cosmos3Serve, ImageOfTheAskedSizeLikeThePipelineMakesIt) {
  Served served(checkpoint("nano"));
  const auto answer = served.get({.parameters = kSmallImage});
  ASSERT_FALSE(answer->failed) << answer->message;
  ASSERT_EQ(answer->chunks.size(), 1U);
  const Tensor got = decode_png(answer->chunks[0].data, "answer");
  EXPECT_EQ(got.shape(), (Shape{64, 96, 3}));

  using namespace cosmos3;  // NOLINT
  ThreadPool pool(2);
  CpuStream stream(pool);
  const Pipeline pipeline(checkpoint("nano"), pool);
  Pipeline::Request request;
  request.cond_ids = pipeline.prompt().encode("a dog on the grass", {}, false);
  request.uncond_ids = pipeline.prompt().encode("blurry", {}, true);
  GenLayout& layout = request.plan.layout;
  layout.frames = 1;
  layout.latent_height = 4;
  layout.latent_width = 6;
  layout.fps = 24.0;
  layout.clean_frames = {false};
  request.plan.guidance = {.scale = 6.0F, .interval = {400.0, 1000.0}};
  request.plan.schedule = make_schedule(pipeline.config(), 3, 3.0, true);
  request.start = draw_noise(pipeline.config().transformer, layout, 7);
  const GenState made = pipeline.run(stream, request);
  VaeCache cache;
  const Tensor pixels = pipeline.decoder().decode(stream, made.vision, cache);
  Tensor want = Tensor::empty(pixels.shape(), DType::kU8);
  to_bytes(stream, pixels, want);
  EXPECT_TRUE(compare(got, want.select(0, 0).copy(), {.atol = 1.0}).passed);
}

TEST(Cosmos3Serve, TheSameSeedGivesTheSameBytesInAnyCompany) {
  Served served(checkpoint("nano"));
  const auto alone = served.get({.parameters = kSmallImage});
  ASSERT_FALSE(alone->failed) << alone->message;
  std::vector<std::shared_ptr<Answer>> others;
  std::vector<std::shared_ptr<Answer>> same;
  for (int i = 0; i < 4; ++i) {
    others.push_back(served.ask(
        {.prompt = "waves",
         .parameters = R"({"size":"48x32","num_inference_steps":)" + std::to_string(2 + i) +
                       R"(,"seed":1,"guidance_scale":)" + (i % 2 == 0 ? "1.0" : "4.0") + "}"}));
    same.push_back(served.ask({.parameters = kSmallImage}));
  }
  for (size_t i = 0; i < same.size(); ++i) {
    others[i]->wait();
    EXPECT_FALSE(others[i]->failed) << others[i]->message;
    same[i]->wait();
    ASSERT_FALSE(same[i]->failed) << same[i]->message;
    EXPECT_EQ(same[i]->chunks[0].data, alone->chunks[0].data);
  }
}

std::string test_file(const std::string& name) {
  return read_text_file(std::string(MSTAR_SOURCE_DIR "/tests/media/") + name);
}

// The frames of an answer's only chunk, an MP4; empty after a failure.
Tensor film_of(const Answer& answer) {
  if (answer.failed || answer.chunks.size() != 1) {
    ADD_FAILURE() << answer.message << answer.chunks.size() << " chunks";
    return {};
  }
  const OutputChunk& chunk = answer.chunks[0];
  EXPECT_EQ(chunk.metadata.at("format").get_string(), "mp4");
  const VideoClip clip = read_video(chunk.data);
  EXPECT_EQ(clip.frames.dim(0), chunk.metadata.at("num_frames").get_int());
  EXPECT_EQ(clip.fps, chunk.metadata.at("fps").get_double());
  return clip.frames;
}

const char* const kSmallVideo =
    R"({"size":"64x48","num_frames":5,"num_inference_steps":2,"seed":3,"fps":16})";

TEST(Cosmos3Serve, VideoFromTextAPictureAndAFilm) {
  const auto video = graph::Modality::kVideo;
  for (const char* name : {"nano", "edge"}) {
    Served served(checkpoint(name));
    const auto from_text = served.get({.parameters = kSmallVideo, .output = video});
    EXPECT_EQ(film_of(*from_text).shape(), (Shape{5, 48, 64, 3}));
    EXPECT_EQ(from_text->chunks[0].metadata.at("seconds").get_double(), 5.0 / 16.0);
    const auto from_picture =
        served.get({.parameters = kSmallVideo, .output = video, .picture = picture(50, 70)});
    EXPECT_EQ(film_of(*from_picture).dim(0), 5);
    EXPECT_NE(from_picture->chunks[0].data, from_text->chunks[0].data);
    const auto from_film =
        served.get({.parameters = kSmallVideo, .output = video, .film = test_file("film.webm")});
    EXPECT_EQ(film_of(*from_film).dim(0), 5);
    EXPECT_NE(from_film->chunks[0].data, from_picture->chunks[0].data);
  }
}

TEST(Cosmos3Serve, BareFramesAreWhatTheFilmShows) {
  Served served(checkpoint("nano"));
  const auto film = served.get({.parameters = kSmallVideo, .output = graph::Modality::kVideo});
  std::string parameters = kSmallVideo;
  parameters.back() = ',';
  const auto bare = served.get(
      {.parameters = parameters + R"("video_format":"rgb24"})", .output = graph::Modality::kVideo});
  ASSERT_FALSE(bare->failed) << bare->message;
  ASSERT_EQ(bare->chunks.size(), 1U);
  const std::string& frames = bare->chunks[0].data;
  ASSERT_EQ(frames.size(), 5U * 48 * 64 * 3);
  const Tensor shown = film_of(*film);
  // Brightness: colour has half the resolution, and these weights make noise.
  double distance = 0.0;
  for (size_t i = 0; i < frames.size(); i += 3) {
    double luma = 0.0;
    constexpr double kWeights[] = {0.299, 0.587, 0.114};
    for (size_t colour = 0; colour < 3; ++colour) {
      luma += kWeights[colour] *
              (static_cast<unsigned char>(frames[i + colour]) - shown.data<uint8_t>()[i + colour]);
    }
    distance += std::abs(luma);
  }
  EXPECT_LT(distance / (static_cast<double>(frames.size()) / 3.0), 8.0);
}

TEST(Cosmos3Serve, PicturesOfAllKindsAreRead) {
  Served served(checkpoint("nano"));
  for (const char* name : {"alpha.webp", "turned6.jpg", "cmyk.jpg", "palette.gif", "alpha.bmp"}) {
    const auto answer = served.get(
        {.parameters = kSmallVideo, .output = graph::Modality::kVideo, .picture = test_file(name)});
    EXPECT_EQ(film_of(*answer).dim(0), 5) << name;
  }
  const auto broken = served.get({.parameters = kSmallVideo,
                                  .output = graph::Modality::kVideo,
                                  .picture = test_file("rgb.jpg").substr(0, 400)});
  EXPECT_TRUE(broken->failed);
  EXPECT_EQ(broken->code, ErrorCode::kUnsupportedMedia) << broken->message;
}

// The last frames of a film are others than its first.
TEST(Cosmos3Serve, EitherEndOfAFilmIsKept) {
  Served served(checkpoint("nano"));
  const auto with = [&](const char* keep) {
    return served.get(
        {.parameters = std::string(R"({"size":"64x48","num_frames":9,"num_inference_steps":1,)") +
                       R"("seed":3,"condition_frame_indexes_vision":0,"condition_video_keep":")" +
                       keep + "\"}",
         .output = graph::Modality::kVideo,
         .film = test_file("film.mp4")});
  };
  const auto first = with("first");
  const auto last = with("last");
  EXPECT_EQ(film_of(*first).dim(0), 9);
  EXPECT_NE(first->chunks[0].data, last->chunks[0].data);
}

TEST(Cosmos3Serve, VideoWithSound) {
  Served served(checkpoint("nano"));
  const char* const parameters =
      R"({"size":"64x48","num_frames":5,"num_inference_steps":2,"generate_sound":true,"seed":4})";
  const auto answer = served.get({.parameters = parameters, .output = graph::Modality::kVideo});
  EXPECT_EQ(film_of(*answer).dim(0), 5);
  EXPECT_TRUE(answer->chunks[0].metadata.at("has_sound").get_bool());
  const AudioClip inside = read_audio(answer->chunks[0].data, {});
  EXPECT_EQ(inside.num_channels(), 2);
  EXPECT_NEAR(inside.seconds(), 5.0 / 24.0, 0.13);  // AAC comes in frames of 1024 samples
  // The sound alone: 5 frames at 24 a second, 750 samples a second, two channels of 16 bits.
  const auto sound = served.get({.parameters = parameters, .output = graph::Modality::kAudio});
  ASSERT_FALSE(sound->failed) << sound->message;
  ASSERT_EQ(sound->chunks.size(), 1U);
  EXPECT_EQ(sound->chunks[0].data.size(), 156U * 2 * 2);
  EXPECT_EQ(sound->chunks[0].metadata.at("sample_rate").get_int(), 750);
}

TEST(Cosmos3Serve, GivenNoiseTakesTheSeedsPlace) {
  Served served(checkpoint("nano"));
  const auto config = cosmos3::Cosmos3Config::load(checkpoint("nano"));
  std::vector<float> noise(static_cast<size_t>(config.transformer.latent_channel * 4 * 6));
  for (size_t i = 0; i < noise.size(); ++i) {
    noise[i] = static_cast<float>(i % 7) - 3.0F;
  }
  const std::string base64 =
      encode_base64({reinterpret_cast<const char*>(noise.data()), noise.size() * sizeof(float)});
  const auto with = [&](int seed) {
    return served.get({.parameters = R"({"size":"96x64","num_inference_steps":2,"seed":)" +
                                     std::to_string(seed) + R"(,"noise":")" + base64 + "\"}"});
  };
  const auto one = with(1);
  ASSERT_FALSE(one->failed) << one->message;
  EXPECT_EQ(one->chunks[0].data, with(2)->chunks[0].data);
  const auto wrong = served.get({.parameters = R"({"size":"96x96","noise":")" + base64 + "\"}"});
  EXPECT_TRUE(wrong->failed);
  EXPECT_NE(wrong->message.find("\"noise\""), std::string::npos) << wrong->message;
}

TEST(Cosmos3Serve, ActionsInAndOut) {
  Served served(checkpoint("nano"));
  const std::string common =
      R"("size":"64x48","num_inference_steps":2,"action_chunk_size":4,"fps":15,"seed":5,)"
      R"("domain_name":"av")";
  const auto policy =
      served.get({.parameters = "{" + common + R"(,"action_mode":"policy","raw_action_dim":9})",
                  .output = graph::Modality::kAction,
                  .picture = picture(48, 64)});
  ASSERT_FALSE(policy->failed) << policy->message;
  ASSERT_EQ(policy->chunks.size(), 1U);
  ASSERT_EQ(policy->chunks[0].data.size(), 4U * 12 * sizeof(float));
  std::vector<float> values(48);
  std::memcpy(values.data(), policy->chunks[0].data.data(), policy->chunks[0].data.size());
  EXPECT_NE(values[0], 0.0F);
  EXPECT_EQ(values[9], 0.0F);
  EXPECT_EQ(values[11], 0.0F);
  const auto forward = served.get(
      {.parameters =
           "{" + common + R"(,"action_mode":"forward_dynamics","action":[[0.1,0.2],[0.3,0.4]]})",
       .output = graph::Modality::kVideo,
       .picture = picture(48, 64)});
  ASSERT_FALSE(forward->failed) << forward->message;
  EXPECT_EQ(film_of(*forward).shape(), (Shape{5, 48, 64, 3}));
  const auto inverse = served.get(
      {.parameters = "{" + common + R"(,"action_mode":"inverse_dynamics","raw_action_dim":9})",
       .output = graph::Modality::kAction,
       .film = test_file("film.mkv")});
  ASSERT_FALSE(inverse->failed) << inverse->message;
  EXPECT_EQ(inverse->chunks[0].data.size(), 4U * 12 * sizeof(float));
  EXPECT_NE(inverse->chunks[0].data, policy->chunks[0].data);
}

TEST(Cosmos3Serve, DistilledCheckpointTakesItsOwnSteps) {
  Served served(checkpoint("distilled"));
  const auto answer = served.get({.parameters = R"({"size":"96x64","seed":2})"});
  ASSERT_FALSE(answer->failed) << answer->message;
  EXPECT_EQ(decode_png(answer->chunks[0].data, "answer").shape(), (Shape{64, 96, 3}));
}

TEST(Cosmos3Serve, RefusesWhatTheCheckpointCannotDo) {
  Served edge(checkpoint("edge"));
  Served nano(checkpoint("nano"));
  const auto expect_refused = [](Served& served, const Question& question, const char* about) {
    const auto answer = served.get(question);
    EXPECT_TRUE(answer->failed);
    EXPECT_EQ(answer->code, ErrorCode::kInvalidArgument) << answer->message;
    EXPECT_NE(answer->message.find(about), std::string::npos) << answer->message;
  };
  const auto video = graph::Modality::kVideo;
  expect_refused(edge, {.parameters = R"({"generate_sound":true})", .output = video}, "sound");
  expect_refused(nano, {.parameters = R"({"size":"100x64"})"}, "multiples of 16");
  expect_refused(nano, {.parameters = R"({"size":"big"})"}, "WxH");
  expect_refused(nano, {.output = graph::Modality::kAction}, "action_mode");
  expect_refused(nano, {.parameters = R"({"num_frames":5})"}, "num_frames");
  expect_refused(nano, {.parameters = R"({"colour":"red"})"}, "colour");
  expect_refused(nano,
                 {.parameters = R"({"action_mode":"policy","raw_action_dim":3,"domain_id":1})",
                  .output = graph::Modality::kAction},
                 "image");
  Served distilled(checkpoint("distilled"));
  expect_refused(distilled,
                 {.parameters = R"({"action_mode":"policy","raw_action_dim":3,"domain_id":0})",
                  .output = graph::Modality::kAction,
                  .picture = picture(48, 64)},
                 "no action heads");
  expect_refused(nano, {.parameters = R"({"seconds":"soon"})", .output = video}, "seconds");
  expect_refused(edge, {.parameters = R"({"use_karras_sigmas":true})"}, "use_karras_sigmas");
}

TEST(Cosmos3Serve, OnlyWhatServedOutputsNeedIsLoaded) {
  const auto model =
      open_model(checkpoint("nano"), Json::parse(R"({"output_modalities":["image"]})"));
  const graph::CompiledModel graph = graph::compile(model->get_graph_walk_graphs());
  EXPECT_EQ(graph.nodes, (std::vector<std::string>{"dit", "vae_decoder"}));
  ModelRequest request;
  request.messages.push_back({"user", {{.text = "waves"}}});
  request.output_modalities = {graph::Modality::kVideo};
  EXPECT_THROW(model->process_prompt(request), Error);
  EXPECT_THROW(open_model(checkpoint("edge"), Json::parse(R"({"output_modalities":["audio"]})")),
               Error);
}

TEST(Cosmos3Serve, MemoryIsCheckedBeforeItIsTaken) {
  const auto model = open_model(checkpoint("nano"), Json::object());
  try {
    Runtime runtime(*model, Deployment{}, {.num_threads = 1, .memory_bytes = 1000000});
    ADD_FAILURE() << "fits a megabyte";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("have 1.0 MB"), std::string::npos) << error.what();
    for (const char* item : {"dit weights 0.",
                             "vae decoder weights 1.",
                             "vae encoder weights 0.",
                             "sound decoder weights 0.",
                             "kv pool 5.",
                             "activations "}) {
      EXPECT_NE(std::string(error.what()).find(item), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(Runtime(*model, Deployment{}, {.num_threads = 1, .memory_bytes = 1000000000}));
}

// The towers' matrices as 8-bit integers: nearly the same picture.
TEST(Cosmos3Serve, QuantizedTowersDrawNearlyTheSame) {
  RuntimeOptions options{.num_threads = 2};
  options.engine.quantization = "int8";
  Served exact(checkpoint("nano"));
  Served quantized(checkpoint("nano"), options);
  const auto a = exact.get({.parameters = kSmallImage});
  const auto b = quantized.get({.parameters = kSmallImage});
  ASSERT_FALSE(b->failed) << b->message;
  EXPECT_NE(a->chunks[0].data, b->chunks[0].data);
  const Tensor left = decode_image(a->chunks[0].data);
  const Tensor right = decode_image(b->chunks[0].data);
  double distance = 0.0;
  for (int64_t i = 0; i < left.num_elements(); ++i) {
    distance += std::abs(left.data<uint8_t>()[i] - right.data<uint8_t>()[i]);
  }
  EXPECT_LT(distance / static_cast<double>(left.num_elements()), 4.0);
}

TEST(Cosmos3Serve, CancellingEndsTheLoop) {
  Served served(checkpoint("nano"));
  Service::Ticket ticket;
  const auto answer = served.ask({.parameters = R"({"size":"128x128","num_frames":17,)"
                                                R"("num_inference_steps":100})",
                                  .output = graph::Modality::kVideo},
                                 &ticket);
  answer->wait_for_progress();
  ticket.cancel();
  answer->wait();
  EXPECT_TRUE(answer->failed);
  EXPECT_EQ(answer->code, ErrorCode::kCancelled);
  // Everything was given back: the next request is served.
  EXPECT_FALSE(served.get({.parameters = kSmallImage})->failed);
}

TEST(Cosmos3Serve, CancellingWhileDecodingGivesEverythingBack) {
  Served served(checkpoint("nano"));
  const int64_t held_at_start = served.num_held();  // pages of padding rows of captures
  Service::Ticket ticket;
  // One step, then 32 latent frames to decode, one after the other.
  const auto answer = served.ask({.parameters = R"({"size":"256x256","num_frames":125,)"
                                                R"("num_inference_steps":1,"guidance_scale":1})",
                                  .output = graph::Modality::kVideo},
                                 &ticket);
  answer->wait_for_progress();
  const auto asked = std::chrono::steady_clock::now();
  ticket.cancel();
  answer->wait();
  EXPECT_TRUE(answer->failed);
  EXPECT_EQ(answer->code, ErrorCode::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(20));
  EXPECT_FALSE(served.get({.parameters = kSmallImage})->failed);
  served.drain();  // a request's last moment is no leak
  EXPECT_EQ(served.num_held(), held_at_start);
}

// A copy of the nano checkpoint of which `change` may alter the tensors of `part`.
std::string altered_checkpoint(
    const std::string& name,
    const std::function<void(std::vector<std::pair<std::string, Tensor>>&)>& change,
    const std::string& part = "transformer") {
  const fs::path folder = fs::temp_directory_path() / ("mstar_cosmos3_" + name);
  fs::remove_all(folder);
  fs::copy(checkpoint("nano"), folder, fs::copy_options::recursive);
  const std::string file = (folder / part / "diffusion_pytorch_model.safetensors").string();
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    const auto reader = SafetensorsFile::open(file);
    for (const TensorInfo& info : reader->tensors()) {
      tensors.emplace_back(info.name, reader->get(info).copy());
    }
  }
  change(tensors);
  fs::remove(file);
  write_safetensors(file, tensors);
  return folder.string();
}

TEST(Cosmos3Serve, ABrokenWeightFailsTheRequestNamingTheStep) {
  const std::string folder = altered_checkpoint("nan", [](auto& tensors) {
    for (auto& [name, tensor] : tensors) {
      if (name == "proj_out.bias") {
        tensor = Tensor::zeros(tensor.shape(), DType::kF32);
        tensor.template data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  });
  Served served(folder);
  const auto answer = served.get({.parameters = kSmallImage});
  EXPECT_TRUE(answer->failed);
  EXPECT_NE(answer->message.find("dit, image_gen, step 1"), std::string::npos) << answer->message;
  fs::remove_all(folder);
}

TEST(Cosmos3Serve, ABrokenWeightOfADecoderNamesIt) {
  const std::string folder = altered_checkpoint(
      "nan_vae",
      [](auto& tensors) {
        for (auto& [name, tensor] : tensors) {
          if (name == "decoder.conv_out.bias" || name == "encoder.conv_out.bias") {
            tensor = Tensor::zeros(tensor.shape(), DType::kF32);
            tensor.template data<float>()[0] = std::numeric_limits<float>::infinity();
          }
        }
      },
      "vae");
  Served served(folder);
  const auto image = served.get({.parameters = kSmallImage});
  EXPECT_TRUE(image->failed);
  EXPECT_NE(image->message.find("vae_decoder, image_gen"), std::string::npos) << image->message;
  const auto video = served.get(
      {.parameters = kSmallVideo, .output = graph::Modality::kVideo, .picture = picture(48, 64)});
  EXPECT_TRUE(video->failed);
  EXPECT_NE(video->message.find("vae_encoder, prefill_cond"), std::string::npos) << video->message;
  fs::remove_all(folder);
}

std::string loading_error(const std::string& folder) {
  try {
    Served served(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Cosmos3Serve, AnIncompleteCheckpointIsRefusedByName) {
  std::string name;
  const std::string missing = altered_checkpoint("missing", [&](auto& tensors) {
    name = tensors[5].first;
    tensors.erase(tensors.begin() + 5);
  });
  EXPECT_NE(loading_error(missing).find(name), std::string::npos);
  fs::remove_all(fs::path(missing) / "vae");
  EXPECT_NE(loading_error(missing).find("vae/config.json"), std::string::npos);
  fs::remove_all(missing);
  const std::string renamed =
      altered_checkpoint("renamed", [](auto& tensors) { tensors[3].first += "_of_another_model"; });
  EXPECT_NE(loading_error(renamed).find("_of_another_model"), std::string::npos);
  fs::remove_all(renamed);
  const std::string cut = altered_checkpoint("cut", [&](auto& tensors) {
    name = tensors[2].first;
    tensors[2].second = tensors[2].second.slice(0, 0, 1).copy();
  });
  EXPECT_NE(loading_error(cut).find(name), std::string::npos);
  fs::remove_all(cut);
}

}  // namespace
}  // namespace mstar
