// What the tests of served Cosmos3 checkpoints share: one checkpoint on a runtime and a service,
// and the answers of its requests.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mstar/media/png.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"

namespace mstar::cosmos3_test {

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
  std::string picture{};  // PNG and the like
  std::string film{};     // MP4 and the like
};

// One checkpoint being served.
class Served {
 public:
  explicit Served(const std::string& folder,
                  const RuntimeOptions& options = {.num_threads = 2},
                  const Json& model_kwargs = Json::object(),
                  const Deployment& deployment = {})
      : model_(open_model(folder, model_kwargs)),
        runtime_(*model_, deployment, options),
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
    if (!question.film.empty()) {
      request.media.push_back({graph::Modality::kVideo,
                               std::make_shared<const std::string>(question.film),
                               "film.mp4"});
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

  // Waits until nothing runs; nothing can be asked afterwards.
  void drain() { EXPECT_TRUE(runtime_.conductor().drain(std::chrono::seconds(20))); }

  // Values and cache pages that requests hold, and those of captures.
  int64_t num_held() {
    int64_t held = 0;
    for (const Scheduler::Stats& stats : runtime_.scheduler_stats()) {
      held += stats.num_live_payloads + stats.num_requests;
    }
    for (const KvUsage& usage : runtime_.kv_usage(0)) {
      held += usage.stats.num_pages - usage.stats.num_free + usage.stats.num_open_requests;
    }
    return held;
  }

  int64_t num_used_pages() {
    int64_t used = 0;
    for (const KvUsage& usage : runtime_.kv_usage(0)) {
      used += usage.stats.num_pages - usage.stats.num_free;
    }
    return used;
  }

  // Steps that were replayed so far.
  int64_t num_replayed() {
    int64_t count = 0;
    for (const Scheduler::Stats& stats : runtime_.scheduler_stats()) {
      count += stats.num_captured_steps;
    }
    return count;
  }

  int num_captures() const { return runtime_.num_captures(0); }

 private:
  std::unique_ptr<Model> model_;
  Runtime runtime_;
  Service service_;
  int num_asked_ = 0;
};

inline std::string checkpoint(const std::string& name) {
  return MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/" + name;
}

// A PNG of that size, no two pixels alike in a row.
inline std::string picture(int64_t height, int64_t width) {
  Tensor pixels = Tensor::empty({height, width, 3}, DType::kU8);
  for (int64_t i = 0; i < pixels.num_elements(); ++i) {
    pixels.data<uint8_t>()[i] = static_cast<uint8_t>(i * 3 % 253);
  }
  return encode_png(pixels);
}

}  // namespace mstar::cosmos3_test
