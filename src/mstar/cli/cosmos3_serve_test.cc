// Cosmos3 checkpoints through runtime and service: what a client asks and gets.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "mstar/base/error.h"
#include "mstar/checkpoint/safetensors.h"
#include "mstar/media/png.h"
#include "mstar/models/cosmos3/pipeline.h"
#include "mstar/models/cosmos3/vae_ops.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"
#include "mstar/tensor/compare.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpoints = MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/";

class Answer : public ChunkSink {
 public:
  void on_chunk(OutputChunk chunk) override {
    const std::lock_guard lock(mutex_);
    chunks.push_back(std::move(chunk));
  }

  void on_progress(std::string_view, int64_t iteration, int64_t) override {
    const std::lock_guard lock(mutex_);
    last_iteration = iteration;
    progressed_.notify_all();
  }

  void on_done(const Completion&) override { end(ErrorCode::kInternal, "", false); }

  void on_error(ErrorCode error_code, const std::string& error_message) override {
    end(error_code, error_message, true);
  }

  void wait() {
    std::unique_lock lock(mutex_);
    progressed_.wait(lock, [&] { return ended; });
  }

  void wait_for_progress() {
    std::unique_lock lock(mutex_);
    progressed_.wait(lock, [&] { return ended || last_iteration > 0; });
  }

  std::vector<OutputChunk> chunks;
  bool ended = false;
  bool failed = false;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  int64_t last_iteration = 0;

 private:
  void end(ErrorCode error_code, const std::string& error_message, bool is_error) {
    const std::lock_guard lock(mutex_);
    ended = true;
    failed = is_error;
    code = error_code;
    message = error_message;
    progressed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable progressed_;
};

struct Question {
  std::string prompt = "a dog on the grass";
  std::string parameters = "{}";
  graph::Modality output = graph::Modality::kImage;
  std::string picture;  // PNG
};

// One checkpoint being served.
class Served {
 public:
  explicit Served(const std::string& folder)
      : model_(open_model(folder, Json::object())),
        runtime_(*model_, Deployment{}, {.num_threads = 2}),
        service_(*model_, runtime_.conductor()) {}

  std::shared_ptr<Answer> ask(const Question& question, Service::Ticket* ticket = nullptr) {
    ModelRequest request;
    request.request_id = std::to_string(++num_asked_);
    request.messages.push_back({"user", {{.text = question.prompt}}});
    request.output_modalities = {question.output};
    request.parameters = Json::parse(question.parameters);
    if (!question.picture.empty()) {
      request.media.push_back({graph::Modality::kImage,
                               std::make_shared<const std::string>(question.picture),
                               "picture.png"});
    }
    auto answer = std::make_shared<Answer>();
    const Service::Ticket own = service_.submit(std::move(request), answer, true);
    if (ticket != nullptr) {
      *ticket = own;
    }
    return answer;
  }

  std::shared_ptr<Answer> get(const Question& question) {
    auto answer = ask(question);
    answer->wait();
    return answer;
  }

 private:
  std::unique_ptr<Model> model_;
  Runtime runtime_;
  Service service_;
  int num_asked_ = 0;
};

std::string checkpoint(const char* name) {
  return std::string(kCheckpoints) + name;
}

std::string picture(int64_t height, int64_t width) {
  Tensor pixels = Tensor::empty({height, width, 3}, DType::kU8);
  for (int64_t i = 0; i < pixels.num_elements(); ++i) {
    pixels.data<uint8_t>()[i] = static_cast<uint8_t>(i * 3 % 253);
  }
  return encode_png(pixels);
}

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

TEST(Cosmos3Serve, VideoFromTextAndFromAPicture) {
  for (const char* name : {"nano", "edge"}) {
    Served served(checkpoint(name));
    const std::string parameters =
        R"({"size":"64x48","num_frames":5,"num_inference_steps":2,"seed":3,"fps":16})";
    const auto from_text =
        served.get({.parameters = parameters, .output = graph::Modality::kVideo});
    ASSERT_FALSE(from_text->failed) << from_text->message;
    ASSERT_EQ(from_text->chunks.size(), 1U);
    EXPECT_EQ(from_text->chunks[0].data.size(), 5U * 48 * 64 * 3);
    EXPECT_EQ(from_text->chunks[0].metadata.at("num_frames").get_int(), 5);
    const auto from_picture = served.get(
        {.parameters = parameters, .output = graph::Modality::kVideo, .picture = picture(50, 70)});
    ASSERT_FALSE(from_picture->failed) << from_picture->message;
    EXPECT_NE(from_picture->chunks[0].data, from_text->chunks[0].data);
  }
}

TEST(Cosmos3Serve, VideoWithSound) {
  Served served(checkpoint("nano"));
  const auto answer = served.get(
      {.parameters =
           R"({"size":"64x48","num_frames":5,"num_inference_steps":2,"generate_sound":true})",
       .output = graph::Modality::kVideo});
  ASSERT_FALSE(answer->failed) << answer->message;
  ASSERT_EQ(answer->chunks.size(), 2U);
  for (const OutputChunk& chunk : answer->chunks) {
    if (chunk.modality == graph::Modality::kAudio) {
      // 5 frames at 24 a second, 750 samples a second, two channels of 16 bits.
      EXPECT_EQ(chunk.data.size(), 156U * 2 * 2);
    }
  }
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
  EXPECT_EQ(forward->chunks[0].data.size(), 5U * 48 * 64 * 3);
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
  expect_refused(edge, {.parameters = R"({"use_karras_sigmas":true})"}, "use_karras_sigmas");
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

// A copy of the nano checkpoint whose transformer `change` may alter.
std::string altered_checkpoint(
    const std::string& name,
    const std::function<void(std::vector<std::pair<std::string, Tensor>>&)>& change) {
  const fs::path folder = fs::temp_directory_path() / ("mstar_cosmos3_" + name);
  fs::remove_all(folder);
  fs::copy(checkpoint("nano"), folder, fs::copy_options::recursive);
  const std::string file = (folder / "transformer/diffusion_pytorch_model.safetensors").string();
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
