// Videos in windows over HTTP: a film while it is made, frames over /generate, a client that stops
// reading, one that goes away.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "mstar/base/str_cat.h"
#include "mstar/media/video.h"
#include "mstar/models/registry.h"
#include "mstar/server/api.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/client.h"
#include "mstar/server/runtime_backend.h"
#include "mstar/tensor/compare.h"

namespace mstar {
namespace {

// The tiny checkpoint behind a server of its own.
class WindowedVideoHttp : public ::testing::Test {
 protected:
  WindowedVideoHttp()
      : model_(
            open_model(MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/nano", Json::object())),
        runtime_(*model_, Deployment{}, RuntimeOptions{.num_threads = 2}),
        service_(*model_, runtime_.conductor()),
        http_(
            {.port = 0, .high_water_bytes = 4096},
            [this](const HttpRequest& request) { return api_.guard(request); },
            [this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
              api_.handle(std::move(request), std::move(writer));
            }),
        url_(HttpUrl::parse(str_cat("http://127.0.0.1:", http_.port()))) {
    api_.context().set_backend(std::make_shared<RuntimeBackend>(
        *model_, runtime_, service_, RuntimeBackendOptions{.served_name = "tiny"}));
  }

  ~WindowedVideoHttp() override {
    runtime_.conductor().drain(std::chrono::seconds(20));
    http_.stop(std::chrono::seconds(5));
    api_.finish();
  }

  // A video of three windows; `more` are further fields.
  static std::string body(const std::string& more) {
    return str_cat(R"({"prompt":"a dog","size":"64x48","seed":3,"window_frames":17,)",
                   R"("overlap_frames":4,"num_inference_steps":2,"window_mode":"chained",)",
                   more,
                   "}");
  }

  HttpResponse post(const std::string& path,
                    const std::string& text,
                    std::function<bool(const HttpResponse&, std::string_view)> on_data = {}) {
    HttpCall call;
    call.method = "POST";
    call.path = path;
    call.headers = {{"Content-Type", "application/json"}};
    call.body = text;
    call.on_data = std::move(on_data);
    return http_call(url_, call);
  }

  // /generate takes a form.
  HttpResponse generate(const std::string& parameters,
                        std::function<bool(const HttpResponse&, std::string_view)> on_data = {}) {
    const auto field = [](const char* name, const std::string& value) {
      return str_cat(
          "--x\r\nContent-Disposition: form-data; name=\"", name, "\"\r\n\r\n", value, "\r\n");
    };
    HttpCall call;
    call.method = "POST";
    call.path = "/generate";
    call.headers = {{"Content-Type", "multipart/form-data; boundary=x"}};
    call.body = str_cat(field("text", "a dog"),
                        field("output_modalities", "video"),
                        field("model_kwargs", parameters),
                        "--x--\r\n");
    call.on_data = std::move(on_data);
    return http_call(url_, call);
  }

  // Requests that are running, once they are no more than `count`: one that has been answered in
  // full is taken apart right behind its answer.
  int64_t running_down_to(int64_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int64_t num_running = runtime_.conductor().stats().num_running;
    while (num_running > count && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
      num_running = runtime_.conductor().stats().num_running;
    }
    return num_running;
  }

  void expect_nothing_left() {
    ASSERT_TRUE(runtime_.conductor().drain(std::chrono::seconds(20)));
    const KvStats stats = runtime_.kv_usage(0).front().stats;
    EXPECT_EQ(stats.num_free, stats.num_pages);
    EXPECT_EQ(runtime_.scheduler_stats().front().num_live_payloads, 0);
  }

  std::unique_ptr<Model> model_;
  Api api_{ApiOptions(), Access({}, {})};
  Runtime runtime_;
  Service service_;
  HttpServer http_;
  HttpUrl url_;
};

TEST_F(WindowedVideoHttp, AFilmIsSentWhileItIsMade) {
  std::string film;
  int64_t num_pieces = 0;
  bool incomplete_at_first = false;
  const HttpResponse response = post("/v1/videos/sync",
                                     body(R"("num_frames":145,"stream_video":true)"),
                                     [&](const HttpResponse& head, std::string_view data) {
                                       EXPECT_EQ(head.status, 200);
                                       EXPECT_EQ(head.headers.get("Content-Type"), "video/mp4");
                                       if (num_pieces++ == 0) {
                                         incomplete_at_first =
                                             runtime_.conductor().stats().num_running > 0;
                                       }
                                       film += data;
                                       return true;
                                     });
  EXPECT_TRUE(incomplete_at_first);
  EXPECT_GT(num_pieces, 2);
  const VideoClip clip = read_video(film);
  EXPECT_EQ(clip.frames.shape(), (Shape{145, 48, 64, 3}));
  EXPECT_NEAR(clip.fps, 24.0, 1e-3);
  // One file of the same request shows the same, after the encoder too.
  const HttpResponse whole = post("/v1/videos/sync", body(R"("num_frames":145)"));
  const Comparison same = compare(read_video(whole.body).frames, clip.frames, {.exact = true});
  EXPECT_TRUE(same.passed) << same.to_string();
  expect_nothing_left();
}

TEST_F(WindowedVideoHttp, GenerateSendsFramesLineByLine) {
  const std::string common =
      R"({"size":"64x48","num_frames":49,"window_frames":17,"num_inference_steps":2,"seed":3,)"
      R"("window_mode":"kv")";
  const auto frames_of = [&](const HttpResponse& response, int64_t* num_lines) {
    std::string frames;
    std::string_view rest = response.body;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const Json line = Json::parse(rest.substr(0, end), "line");
      rest.remove_prefix(end + 1);
      EXPECT_EQ(line.at("modality").get_string(), "video") << line.at("data").get_string();
      const std::string data = decode_base64_lenient(line.at("data").get_string(), "data");
      const Json& metadata = line.at("metadata");
      EXPECT_EQ(metadata.at("format").get_string(), "rgb24");
      EXPECT_EQ(static_cast<int64_t>(data.size()),
                metadata.at("num_frames").get_int() * 64 * 48 * 3);
      frames += data;
      ++*num_lines;
    }
    return frames;
  };
  int64_t num_streamed = 0;
  int64_t num_whole = 0;
  const std::string streamed =
      frames_of(generate(str_cat(common, R"(,"stream_video":true})")), &num_streamed);
  const std::string whole =
      frames_of(generate(str_cat(common, R"(,"video_format":"rgb24"})")), &num_whole);
  EXPECT_EQ(num_streamed, 3);
  EXPECT_EQ(num_whole, 1);
  EXPECT_EQ(streamed.size(), 49U * 64 * 48 * 3);
  EXPECT_EQ(streamed, whole);
}

// A connection that a test fills and empties.
class HeldWriter final : public ResponseWriter {
 public:
  void send(HttpResponse) override { end(); }

  void start(int, HttpHeaders) override {}

  void write(std::string_view data) override {
    const std::lock_guard lock(mutex_);
    body_ += data;
    changed_.notify_all();
  }

  void finish() override { end(); }

  void abort() override { end(); }

  void on_disconnect(std::function<void()>) override {}

  void on_backpressure(std::function<void(bool)> callback) override {
    const std::lock_guard lock(mutex_);
    backpressure_ = std::move(callback);
  }

  void wait_for_bytes() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || !body_.empty(); });
  }

  void wait_for_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
  }

  void set_full(bool full) {
    std::function<void(bool)> callback;
    {
      const std::lock_guard lock(mutex_);
      callback = backpressure_;
    }
    callback(full);
  }

  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  std::string body() {
    const std::lock_guard lock(mutex_);
    return body_;
  }

 private:
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string body_;
  bool ended_ = false;
  std::function<void(bool)> backpressure_;
};

TEST_F(WindowedVideoHttp, AClientThatStopsReadingHoldsItsOwnRequestOnly) {
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/videos/sync";
  request.headers = {{"Content-Type", "application/json"}};
  request.body = R"({"prompt":"a dog","size":"32x32","num_frames":297,"num_inference_steps":2,)"
                 R"("window_mode":"chained","stream_video":true})";
  const auto slow = std::make_shared<HeldWriter>();
  api_.handle(request, slow);
  slow->wait_for_bytes();
  slow->set_full(true);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(post("/v1/videos/sync", body(R"("num_frames":33)")).status, 200);
  }
  EXPECT_EQ(running_down_to(1), 1) << "the one that is not read waits, the others have left";
  EXPECT_EQ(runtime_.conductor().stats().num_done, 3);
  EXPECT_FALSE(slow->has_ended());
  slow->set_full(false);
  slow->wait_for_end();
  EXPECT_EQ(read_video(slow->body()).frames.dim(0), 297);
  expect_nothing_left();
}

TEST_F(WindowedVideoHttp, AClientThatGoesAwayEndsItsRequest) {
  post("/v1/videos/sync",
       body(R"("num_frames":2001,"stream_video":true)"),
       [](const HttpResponse&, std::string_view) { return false; });
  EXPECT_EQ(post("/v1/videos/sync", body(R"("num_frames":17)")).status, 200);
  expect_nothing_left();
  EXPECT_EQ(runtime_.conductor().stats().num_cancelled, 1);
}

TEST_F(WindowedVideoHttp, SessionsAndErrors) {
  const std::string named = R"("session_id":"s","num_frames":)";
  EXPECT_EQ(post("/v1/videos/sync", body(named + "17")).status, 200);
  const HttpResponse next = post("/v1/videos/sync", body(named + R"(24,"resume_session":true)"));
  ASSERT_EQ(next.status, 200) << next.body;
  EXPECT_EQ(read_video(next.body).frames.dim(0), 24);
  const HttpResponse unknown =
      post("/v1/videos/sync", body(R"("session_id":"t","resume_session":true)"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("no session"), std::string::npos) << unknown.body;
  const HttpResponse misplaced =
      post("/v1/videos/sync", R"({"prompt":"a dog","size":"64x48","stream_video":true})");
  EXPECT_EQ(misplaced.status, 400);
  EXPECT_NE(misplaced.body.find("window_mode"), std::string::npos) << misplaced.body;
}

}  // namespace
}  // namespace mstar
