// Videos in windows through runtime and service: streamed and whole, long, slow, cancelled,
// continued.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"

namespace mstar {
namespace {

constexpr const char* kCheckpoints = MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/";

constexpr auto kTooLong = std::chrono::minutes(10);  // on a busy machine too

// Collects one video.
class Film : public ChunkSink {
 public:
  void on_chunk(OutputChunk chunk) override {
    {
      const std::lock_guard lock(mutex_);
      frames += chunk.data;
      num_frames += chunk.metadata.at("num_frames").get_int();
      iteration_of_chunk.push_back(last_iteration);
      metadata.push_back(chunk.metadata);
      changed_.notify_all();
    }
    if (watch) {
      watch();
    }
  }

  void on_progress(std::string_view, int64_t iteration, int64_t limit) override {
    const std::lock_guard lock(mutex_);
    last_iteration = iteration;
    last_limit = limit;
    changed_.notify_all();
  }

  void on_done(const Completion&) override { end("", ErrorCode::kInternal); }

  void on_error(ErrorCode error_code, const std::string& message) override {
    end(message, error_code);
  }

  // Whether it ended well; not ending is a failure of its own.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTooLong, [&] { return ended; }) && error.empty();
  }

  void wait_for_chunks(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTooLong, [&] { return ended || metadata.size() >= count; });
  }

  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return ended;
  }

  std::function<void()> watch;  // after each chunk
  std::string frames;
  int64_t num_frames = 0;
  std::vector<int64_t> iteration_of_chunk;  // how far the transformer was
  std::vector<Json> metadata;               // of the chunks
  int64_t last_iteration = 0;
  int64_t last_limit = 0;
  std::string error;
  ErrorCode code = ErrorCode::kInternal;
  bool ended = false;

 private:
  void end(const std::string& message, ErrorCode error_code) {
    const std::lock_guard lock(mutex_);
    error = message;
    code = error_code;
    ended = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
};

class WindowedVideo : public ::testing::Test {
 protected:
  void start(const char* checkpoint = "nano", const char* kv = "{}", const char* kwargs = "{}") {
    service_.reset();  // a second start: what uses the model goes first
    runtime_.reset();
    model_ = open_model(std::string(kCheckpoints) + checkpoint, Json::parse(kwargs));
    Deployment deployment;
    deployment.resources["kv"] = Json::parse(kv);
    runtime_ = std::make_unique<Runtime>(*model_, deployment, RuntimeOptions{.num_threads = 2});
    service_ = std::make_unique<Service>(*model_, runtime_->conductor());
    pages_at_start_ = pages_in_use();
  }

  std::shared_ptr<Film> ask(const std::string& parameters, Service::Ticket* ticket = nullptr) {
    auto film = std::make_shared<Film>();
    submit(film, parameters, ticket);
    return film;
  }

  void submit(const std::shared_ptr<Film>& film,
              const std::string& parameters,
              Service::Ticket* ticket = nullptr) {
    ModelRequest request;
    request.request_id = str_cat(++num_asked_);
    request.messages.push_back({"user", {{.text = "a dog on the grass"}}});
    request.output_modalities = {graph::Modality::kVideo};
    request.parameters = Json::parse(str_cat("{\"seed\":3,", parameters, "}"));
    if (!request.parameters.contains("size")) {
      request.parameters.set("size", "64x48");
    }
    request.parameters.set("video_format", "rgb24");
    const Service::Ticket own = service_->submit(std::move(request), film, true);
    if (ticket != nullptr) {
      *ticket = own;
    }
  }

  int64_t pages_in_use() const {
    const KvStats stats = runtime_->kv_usage(0).front().stats;
    return stats.num_pages - stats.num_free;
  }

  void expect_empty() {
    ASSERT_TRUE(runtime_->conductor().drain(std::chrono::seconds(20)));
    EXPECT_EQ(pages_in_use(), pages_at_start_);
    for (const Scheduler::Stats& stats : runtime_->scheduler_stats()) {
      EXPECT_EQ(stats.num_requests, 0);
      EXPECT_EQ(stats.num_live_payloads, 0);
    }
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Service> service_;
  int num_asked_ = 0;
  int64_t pages_at_start_ = 0;  // of the padding rows of captures
};

constexpr const char* kThreeWindows =
    R"("num_frames":49,"window_frames":17,"overlap_frames":4,"num_inference_steps":2)";

TEST_F(WindowedVideo, StreamedFramesAreThoseOfTheWholeFile) {
  for (const char* checkpoint : {"nano", "edge"}) {
    start(checkpoint);
    for (const char* mode : {"chained", "kv"}) {
      const std::string common = str_cat(kThreeWindows, R"(,"window_mode":")", mode, "\"");
      const auto whole = ask(common);
      const auto streamed = ask(str_cat(common, R"(,"stream_video":true)"));
      ASSERT_TRUE(whole->wait()) << whole->error;
      ASSERT_TRUE(streamed->wait()) << streamed->error;
      EXPECT_EQ(whole->metadata.size(), 1U);
      EXPECT_GE(streamed->metadata.size(), 3U);
      EXPECT_EQ(whole->num_frames, 49);
      EXPECT_EQ(whole->frames.size(), 49U * 64 * 48 * 3);
      EXPECT_EQ(streamed->frames, whole->frames);
    }
    expect_empty();
  }
}

TEST_F(WindowedVideo, OneWindowIsAVideoMadeAtOnce) {
  start();
  const std::string common = R"("num_frames":17,"num_inference_steps":2,"flow_shift":10)";
  const auto at_once = ask(common);
  const auto chained = ask(str_cat(common, R"(,"window_mode":"chained")"));
  const auto kv = ask(str_cat(common, R"(,"window_mode":"kv")"));
  ASSERT_TRUE(at_once->wait() && chained->wait() && kv->wait());
  EXPECT_EQ(chained->frames, at_once->frames);
  EXPECT_EQ(kv->frames, at_once->frames);
}

TEST_F(WindowedVideo, FramesComeBeforeTheLastWindowIsDenoised) {
  start();
  const auto film = ask(R"("num_frames":117,"num_inference_steps":4,"window_mode":"chained",)"
                        R"("stream_video":true)");
  ASSERT_TRUE(film->wait()) << film->error;
  EXPECT_EQ(film->num_frames, 117);
  EXPECT_EQ(film->last_iteration, film->last_limit);
  const int64_t before_last_window = film->last_limit - 4;
  EXPECT_LT(film->iteration_of_chunk.front(), before_last_window);
}

TEST_F(WindowedVideo, AMinuteStreamsInBoundedMemory) {
  // Pages of four tokens: what is released is seen.
  start("nano", R"({"page_size":4,"max_num_pages":100})");
  auto film = std::make_shared<Film>();
  std::vector<int64_t> pages;
  std::vector<int64_t> payloads;
  film->watch = [&] {
    pages.push_back(pages_in_use());
    payloads.push_back(runtime_->scheduler_stats().front().num_live_payloads);
  };
  submit(film,
         R"("size":"32x32","num_frames":1440,"fps":24,"num_inference_steps":1,)"
         R"("guidance_scale":1,"window_mode":"kv","stream_video":true)");
  ASSERT_TRUE(film->wait()) << film->error;
  EXPECT_EQ(film->num_frames, 1437);  // the next 4k + 1 below
  ASSERT_EQ(film->metadata.size(), 45U);
  const int64_t early = *std::max_element(pages.begin(), pages.begin() + 10);
  const int64_t all = *std::ranges::max_element(pages);
  EXPECT_GT(early, 0);
  EXPECT_EQ(all, early);  // dozens of windows of two pages were committed since
  EXPECT_LE(*std::ranges::max_element(payloads), 40);
  expect_empty();
}

TEST_F(WindowedVideo, MoreContextThanThereArePagesIsRefused) {
  start("nano", R"({"page_size":8,"max_num_pages":60})");
  const std::string common = R"("num_frames":800,"num_inference_steps":1,"guidance_scale":1,)"
                             R"("window_mode":"kv")";
  const auto unbounded = ask(str_cat(common, R"(,"context_frames":0)"));
  EXPECT_FALSE(unbounded->wait());
  EXPECT_EQ(unbounded->code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unbounded->error.find("there are 59"), std::string::npos) << unbounded->error;
  Service::Ticket ticket;
  const auto bounded = ask(str_cat(common, R"(,"stream_video":true)"), &ticket);
  bounded->wait_for_chunks(1);
  EXPECT_FALSE(bounded->has_ended()) << bounded->error;
  ticket.cancel();
  bounded->wait();
  expect_empty();
}

TEST_F(WindowedVideo, TogetherAsAlone) {
  start();
  const std::vector<std::string> asked = {
      str_cat(kThreeWindows, R"(,"window_mode":"kv")"),
      str_cat(kThreeWindows, R"(,"window_mode":"chained","stream_video":true)"),
      R"("num_frames":33,"window_frames":9,"num_inference_steps":3,"window_mode":"kv","size":"96x64")",
      R"("num_frames":9,"num_inference_steps":5)",
  };
  std::vector<std::string> alone;
  for (const std::string& parameters : asked) {
    const auto film = ask(parameters);
    ASSERT_TRUE(film->wait()) << film->error;
    alone.push_back(film->frames);
  }
  std::vector<std::shared_ptr<Film>> films;
  for (size_t index = 0; index < asked.size(); ++index) {
    films.push_back(ask(asked[index]));
  }
  for (size_t index = 0; index < asked.size(); ++index) {
    ASSERT_TRUE(films[index]->wait()) << films[index]->error;
    EXPECT_EQ(films[index]->frames, alone[index]) << asked[index];
  }
  expect_empty();
}

TEST_F(WindowedVideo, APausedClientHoldsItsOwnRequestOnly) {
  start();
  Service::Ticket ticket;
  const auto slow =
      ask(R"("size":"32x32","num_frames":297,"num_inference_steps":4,"window_mode":"chained",)"
          R"("stream_video":true)",
          &ticket);
  slow->wait_for_chunks(1);
  ticket.set_paused(true);
  const auto other = ask(str_cat(kThreeWindows, R"(,"window_mode":"chained")"));
  ASSERT_TRUE(other->wait()) << other->error;
  EXPECT_FALSE(slow->has_ended());
  EXPECT_LT(slow->num_frames, 297);
  ticket.set_paused(false);
  ASSERT_TRUE(slow->wait()) << slow->error;
  EXPECT_EQ(slow->num_frames, 297);
  expect_empty();
}

TEST_F(WindowedVideo, CancellingGivesEverythingBack) {
  start();
  std::vector<std::shared_ptr<Film>> films;
  for (int index = 0; index < 6; ++index) {
    Service::Ticket ticket;
    films.push_back(
        ask(R"("size":"32x32","num_frames":1441,"num_inference_steps":3,"window_mode":"kv",)"
            R"("stream_video":true,"session_id":"gone")",
            &ticket));
    films.back()->wait_for_chunks(static_cast<size_t>(index % 3));
    ticket.cancel();
  }
  for (const auto& film : films) {
    EXPECT_FALSE(film->wait());
    EXPECT_EQ(film->code, ErrorCode::kCancelled) << film->error;
  }
  const auto gone =
      ask(R"("size":"32x32","window_mode":"kv","session_id":"gone","resume_session":true)");
  EXPECT_FALSE(gone->wait());  // no end of it was ever kept
  EXPECT_EQ(gone->code, ErrorCode::kNotFound);
  EXPECT_TRUE(ask(str_cat(kThreeWindows, R"(,"window_mode":"kv")"))->wait());
  expect_empty();
}

TEST_F(WindowedVideo, ASessionGoesOn) {
  start("nano", "{}", R"({"session_store_size":2})");
  const auto film = [&](const std::string& more) {
    auto made = ask(str_cat(
        R"("window_frames":17,"overlap_frames":8,"num_inference_steps":2,"stream_video":true,)",
        more));
    EXPECT_TRUE(made->wait()) << made->error;
    return made;
  };
  for (const char* mode : {"chained", "kv"}) {
    const std::string named =
        str_cat(R"("window_mode":")", mode, R"(","session_id":")", mode, "\"");
    const auto first = film(str_cat(named, R"(,"num_frames":29)"));
    EXPECT_EQ(first->num_frames, 29);
    const auto second = film(str_cat(named, R"(,"num_frames":24,"resume_session":true)"));
    EXPECT_EQ(second->num_frames, 24);
    const auto third = film(str_cat(named, R"(,"num_frames":24,"resume_session":true)"));
    EXPECT_NE(third->frames, second->frames);  // it goes on behind the second
    // Neither starts as a video of its own would.
    EXPECT_NE(second->frames.substr(0, 64 * 48 * 3), first->frames.substr(0, 64 * 48 * 3));
  }
  // A third name takes the place of the one used longest ago.
  film(R"("window_mode":"chained","session_id":"third","num_frames":17)");
  const auto gone = ask(R"("window_mode":"chained","session_id":"chained","resume_session":true)");
  EXPECT_FALSE(gone->wait());
  EXPECT_EQ(gone->code, ErrorCode::kNotFound) << gone->error;
  const auto other_size =
      ask(R"("size":"96x64","window_mode":"chained","session_id":"third","resume_session":true)");
  EXPECT_FALSE(other_size->wait());
  EXPECT_EQ(other_size->code, ErrorCode::kInvalidArgument);
  const auto nameless = ask(R"("window_mode":"chained","resume_session":true)");
  EXPECT_FALSE(nameless->wait());
  EXPECT_NE(nameless->error.find("session_id"), std::string::npos) << nameless->error;
  expect_empty();
}

}  // namespace
}  // namespace mstar
