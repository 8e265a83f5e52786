// Window plans, their parameters, and the store of sessions; numbers are in mstar_golden, whole
// videos in cli_test.
#include <gtest/gtest.h>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/cosmos3/gen_request.h"
#include "mstar/models/cosmos3/vae_decoder_ar.h"
#include "mstar/models/cosmos3/vae_ops.h"
#include "mstar/models/cosmos3/window_run.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::cosmos3 {
namespace {

const std::string kNano = MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/nano";

WindowSessionPtr session_of(int64_t units, int64_t height, int64_t width, int64_t num_units = 40) {
  auto session = std::make_shared<WindowSession>();
  session->latents = Tensor::zeros({8, units, height, width}, DType::kF32);
  session->num_units = num_units;
  return session;
}

class WindowPlanTest : public ::testing::Test {
 protected:
  WindowPlanTest()
      : config_(Cosmos3Config::load(kNano)),
        prompts_(PromptEncoder::load(config_.tokenizer_folder())) {}

  GenRequestPtr plan(const std::string& parameters,
                     const Conditioning& media = {},
                     Modality wants = Modality::kVideo) {
    const ParameterTable table(generation_parameters(config_));
    return plan_request(
        config_, prompts_, "a dog", table.resolve(Json::parse(parameters)), wants, media, 1);
  }

  std::string refusal(const std::string& parameters,
                      const Conditioning& media = {},
                      Modality wants = Modality::kVideo) {
    try {
      plan(parameters, media, wants);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  }

  Cosmos3Config config_;
  PromptEncoder prompts_;
};

TEST_F(WindowPlanTest, DefaultsOfBothModes) {
  const GenRequestPtr chained =
      plan(R"({"size":"64x48","num_frames":189,"window_mode":"chained"})");
  EXPECT_EQ(chained->walk, kWindowWalk);
  ASSERT_TRUE(chained->windows);
  EXPECT_EQ(chained->windows->schedule.num_windows(), 8);
  EXPECT_EQ(chained->windows->schedule.total_units(), 50);
  EXPECT_EQ(chained->windows->num_new_units, 48);
  EXPECT_EQ(chained->plan.layout.frames, 8);
  EXPECT_EQ(chained->plan.schedule.num_steps(), 35);
  EXPECT_EQ(chained->num_iterations(), 8 * 35);
  EXPECT_FALSE(chained->windows->schedule.retention(6, 3));
  const GenRequestPtr kv =
      plan(R"({"size":"64x48","num_frames":189,"window_mode":"kv","num_inference_steps":2})");
  EXPECT_EQ(kv->windows->schedule.num_windows(), 6);
  EXPECT_EQ(kv->windows->schedule.total_units(), 48);
  EXPECT_EQ(kv->num_iterations(), 6 * 2 + 5);  // the last window is kept for nobody
  EXPECT_EQ(kv->windows->schedule.retention(6, 3)->context_budget, 16 * 6);
  EXPECT_TRUE(kv->windows->commits(4));
  EXPECT_FALSE(kv->windows->commits(5));
  EXPECT_FALSE(chained->windows->commits(0));
}

TEST_F(WindowPlanTest, APromiseOfPagesIsBoundedByTheContext) {
  const auto tokens = [&](const char* more) {
    return max_committed_tokens(
        *plan(str_cat(R"({"size":"64x48","num_frames":1441,)", more, "}"))->windows, 6, 4);
  };
  EXPECT_EQ(tokens(R"("window_mode":"chained")"), 0);
  EXPECT_EQ(tokens(R"("window_mode":"kv")"), 16 * 6 + 8 * 6 + 2 * 4);
  EXPECT_EQ(tokens(R"("window_mode":"kv","context_frames":0)"), 368 * 6);
}

TEST_F(WindowPlanTest, RefusesWhatDoesNotGoTogether) {
  const auto expect = [&](const std::string& parameters, const char* about) {
    EXPECT_NE(refusal(parameters).find(about), std::string::npos) << refusal(parameters);
  };
  expect(R"({"window_mode":"tiled"})", "window_mode");
  expect(R"({"stream_video":true})", "\"stream_video\": needs a window_mode");
  expect(R"({"session_id":"a"})", "\"session_id\": needs a window_mode");
  expect(R"({"window_mode":"kv","generate_sound":true})", "sound");
  expect(R"({"window_mode":"chained","num_frames":1000000,"window_frames":5,"overlap_frames":0})",
         "windows, at most");
  EXPECT_NE(refusal(R"({"window_mode":"kv"})", {}, Modality::kImage).find("makes videos"),
            std::string::npos);
  // A clip made at once still has its limit, one made in windows has it per window.
  expect(R"({"size":"1280x704","num_frames":2000})", "tokens");
  EXPECT_EQ(refusal(R"({"size":"1280x704","num_frames":2000,"window_mode":"chained"})"), "");
  expect(R"({"size":"1280x704","num_frames":2000,"window_mode":"kv","window_frames":1000})",
         "tokens");
}

TEST_F(WindowPlanTest, AContinuationStartsWithTheEndOfItsSession) {
  Conditioning media;
  media.session = session_of(16, 3, 4);
  const GenRequestPtr chained =
      plan(R"({"size":"64x48","num_frames":24,"window_mode":"chained","window_frames":17,)"
           R"("overlap_frames":12})",
           media);
  EXPECT_EQ(chained->windows->num_given_units, 3);
  EXPECT_EQ(chained->windows->num_new_units, 6);
  EXPECT_EQ(chained->windows->schedule.total_units(), 9);
  EXPECT_EQ(chained->plan.layout.start_frame_offset, 0);
  const GenRequestPtr kv =
      plan(R"({"size":"64x48","num_frames":24,"window_mode":"kv","window_frames":17})", media);
  EXPECT_EQ(kv->windows->num_given_units, 2);
  EXPECT_EQ(kv->windows->first_unit(), 38);
  EXPECT_EQ(kv->plan.layout.start_frame_offset, 38);
  EXPECT_NE(
      refusal(R"({"size":"64x64","num_frames":24,"window_mode":"kv"})", media).find("same size"),
      std::string::npos);
  media.num_frames = 1;
  EXPECT_NE(refusal(R"({"size":"64x48","window_mode":"kv"})", media).find("resume_session"),
            std::string::npos);
}

TEST_F(WindowPlanTest, WindowsFollowEachOther) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  auto request = std::make_shared<GenRequest>(
      *plan(R"({"size":"64x48","num_frames":37,"window_mode":"kv","window_frames":17,)"
            R"("overlap_frames":4,"num_inference_steps":1,"guidance_scale":1})"));
  WindowRun run(stream, config_.transformer, request, {});
  GenState velocity;
  velocity.vision = Tensor::zeros(run.denoiser()->state().vision.shape(), DType::kF32);
  std::vector<Tensor> fresh;
  int64_t commits = 0;
  while (!run.finished()) {
    const GenLayout& layout = run.denoiser()->plan().layout;
    EXPECT_EQ(layout.start_frame_offset, 4 * run.window());
    EXPECT_EQ(layout.clean_frames.front(), run.window() > 0);
    EXPECT_FALSE(layout.clean_frames.back());
    if (run.is_commit()) {
      ++commits;
      // Only what no earlier window has kept, where it stands in the whole video.
      const int64_t kept = run.commit_layout().frames;
      EXPECT_EQ(kept, run.window() == 0 ? 5 : 4);
      EXPECT_EQ(run.num_tokens(), kept * 4);
      const float first = run.positions(4, 7).data<float>()[0];
      EXPECT_EQ(first, 15007.0F + static_cast<float>(4 * run.window() + 5 - kept));
      run.end_commit(stream);
      continue;
    }
    if (run.window() > 0) {  // starts with the last frame of the one before
      const Tensor before = fresh.back().slice(1, fresh.back().dim(1) - 1, fresh.back().dim(1));
      EXPECT_EQ(run.denoiser()->state().vision.slice(1, 0, 1).copy().to_floats(),
                before.copy().to_floats());
    }
    run.denoiser()->advance(stream, velocity, {});
    fresh.push_back(run.end_denoise(stream));
    ASSERT_TRUE(fresh.back().defined());
  }
  ASSERT_EQ(fresh.size(), 3U);
  EXPECT_EQ(commits, 2);
  EXPECT_EQ(fresh[0].dim(1), 5);
  EXPECT_EQ(fresh[1].dim(1), 4);
  EXPECT_EQ(run.iteration(), request->num_iterations());
}

// Runs the decoder's node on chunks as the engine would.
class WindowDecoderTest : public ::testing::Test {
 protected:
  static constexpr RequestHandle kRequest = 0;

  WindowDecoderTest()
      : pool_(2),
        stream_(pool_),
        config_(Cosmos3Config::load(kNano)),
        vae_(std::make_shared<VaeDecoder>(config_.vae)),
        sessions_(std::make_shared<WindowSessions>(4, 1 << 30)),
        node_(vae_, sessions_) {
    vae_->load(*open_checkpoint(config_.vae_folder()), {pool_});
  }

  // The bytes of latents [channels, frames, h, w] decoded at once.
  std::vector<int64_t> at_once(const Tensor& latents) {
    VaeCache cache;
    const Tensor pixels = vae_->decode(stream_, latents, cache);
    Tensor bytes = Tensor::empty(pixels.shape(), DType::kU8);
    to_bytes(stream_, pixels, bytes);
    return bytes.to_ints();
  }

  // Gives the node a chunk; an undefined one is the stream's end. Returns what it makes.
  std::vector<int64_t> give(const GenRequestPtr& request, const Tensor& latents) {
    CurrentForwardPassInfo info;
    info.handle = kRequest;
    info.values.set(kGenRequest, request);
    const RequestHandle ids[] = {kRequest};
    const CurrentForwardPassInfo* infos[] = {&info};
    ModelInputsFromEngine inputs;
    inputs.request_ids = ids;
    inputs.per_request_info = infos;
    inputs.stream = &stream_;
    ForwardArgs args;
    args.tensors.set(kWindowLatents, latents.defined() ? TensorList{latents} : TensorList{});
    const NamedTensors made = node_.forward(kWindowDecodeWalk, inputs, args);
    const Tensor frames = made.tensor_or_none("video_output");
    return frames.defined() ? frames.to_ints() : std::vector<int64_t>();
  }

  static std::shared_ptr<GenRequest> request_of(int64_t num_new_units) {
    auto request = std::make_shared<GenRequest>();
    request->windows.emplace();
    request->windows->num_new_units = num_new_units;
    request->windows->session_id = "s";
    return request;
  }

  ThreadPool pool_;
  CpuStream stream_;
  Cosmos3Config config_;
  std::shared_ptr<VaeDecoder> vae_;
  std::shared_ptr<WindowSessions> sessions_;
  Cosmos3VAEDecoderARSubmodule node_;
};

TEST_F(WindowDecoderTest, WindowsAndContinuationsGiveTheFramesOfTheWholeVideo) {
  const Tensor latents = gaussian_noise({config_.vae.z_dim, 9, 3, 4}, 1, 0);
  const auto cut = [&](int64_t begin, int64_t end) { return latents.slice(1, begin, end).copy(); };
  const GenRequestPtr first = request_of(6);
  std::vector<int64_t> got;
  for (const auto& [begin, end] : {std::pair{0, 3}, std::pair{3, 5}, std::pair{5, 8}}) {
    EXPECT_EQ(sessions_->num_sessions(), 0);
    const std::vector<int64_t> frames = give(first, cut(begin, end));
    got.insert(got.end(), frames.begin(), frames.end());
  }
  EXPECT_TRUE(give(first, {}).empty());         // the end of the stream
  EXPECT_TRUE(give(first, cut(0, 2)).empty());  // nobody asked for more
  node_.cleanup_request(kRequest);
  // The last window brought two latent frames more than were asked for: they are not decoded.
  EXPECT_EQ(got, at_once(cut(0, 6)));

  const WindowSessionPtr session = sessions_->find("s");
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->num_units, 6);
  EXPECT_EQ(session->num_frames, 21);
  EXPECT_EQ(session->latents.to_floats(), cut(0, 6).to_floats());
  const auto second = request_of(3);
  second->windows->continued = session;
  const std::vector<int64_t> rest = give(second, cut(6, 9));
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, at_once(latents));
  EXPECT_EQ(sessions_->find("s")->num_units, 9);
  node_.cleanup_request(kRequest);
}

TEST(WindowSessions, TheOneUsedLongestAgoGoesFirst) {
  WindowSessions sessions(2, 1 << 20);
  sessions.store("a", session_of(1, 3, 4));
  sessions.store("b", session_of(1, 3, 4));
  EXPECT_NE(sessions.find("a"), nullptr);
  sessions.store("c", session_of(1, 3, 4));
  EXPECT_EQ(sessions.find("b"), nullptr);
  EXPECT_NE(sessions.find("a"), nullptr);
  sessions.store("a", session_of(2, 3, 4));
  EXPECT_EQ(sessions.num_sessions(), 2);
  EXPECT_EQ(sessions.find("a")->latents.dim(1), 2);
}

TEST(WindowSessions, BytesAreBoundedToo) {
  const int64_t size = session_of(4, 3, 4)->size_bytes();
  WindowSessions sessions(100, 2 * size);
  for (const char* id : {"a", "b", "c"}) {
    sessions.store(id, session_of(4, 3, 4));
    EXPECT_LE(sessions.num_bytes(), 2 * size);
  }
  EXPECT_EQ(sessions.find("a"), nullptr);
  sessions.store("b", session_of(100, 3, 4));  // larger than the store: not kept, nor its old end
  EXPECT_EQ(sessions.find("b"), nullptr);
  EXPECT_EQ(sessions.num_sessions(), 1);
  WindowSessions none(0, size);
  none.store("a", session_of(1, 3, 4));
  EXPECT_EQ(none.find("a"), nullptr);
}

}  // namespace
}  // namespace mstar::cosmos3
