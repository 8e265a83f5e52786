#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "mstar/base/str_cat.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"

// Tiny language models of the tests, served in this process.
namespace mstar::testing {

inline constexpr int kVocabSize = 320;

// Words t0 … t319, one a token: prompts and answers can be read as ids.
inline std::string word_tokenizer() {
  std::vector<std::string> entries;
  for (int id = 0; id < kVocabSize; ++id) {
    entries.push_back(str_cat("\"t", id, "\":", id));
  }
  return str_cat(R"({"version":"1.0","added_tokens":[],"normalizer":null,)",
                 R"("pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,)",
                 R"("decoder":{"type":"WordPiece","prefix":"##","cleanup":false},)",
                 R"("model":{"type":"WordPiece","unk_token":"t0",)",
                 R"("continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{)",
                 str_join(entries, ","),
                 "}}}");
}

inline std::string words(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) {
    text += str_cat(text.empty() ? "t" : " t", id);
  }
  return text;
}

// The same as an answer, which goes on from words.
inline std::string answered(const std::vector<int64_t>& ids) {
  return " " + words(ids);
}

// A prompt of `length` tokens that depends on `seed` alone.
inline std::string prompt_of(int length, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> ids;
  for (int index = 0; index < length; ++index) {
    ids.push_back(3 + static_cast<int64_t>(random() % (kVocabSize - 3)));
  }
  return words(ids);
}

// Collects one answer and lets a test wait for it.
class Answer : public ChunkSink {
 public:
  void on_chunk(OutputChunk chunk) override {
    const std::lock_guard lock(mutex_);
    text_ += chunk.data;
    num_tokens_ += chunk.num_tokens;
    logprobs_.insert(logprobs_.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    changed_.notify_all();
  }

  void on_done(const Completion& completion) override {
    const std::lock_guard lock(mutex_);
    completion_ = completion;
    done_ = true;
    changed_.notify_all();
  }

  void on_error(ErrorCode code, const std::string& message) override {
    const std::lock_guard lock(mutex_);
    code_ = code;
    error_ = message;
    done_ = true;
    changed_.notify_all();
  }

  // The text, or "error: …". A minute without an end is a failure of its own.
  std::string wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::minutes(1), [&] { return done_; })) {
      return "hangs";
    }
    return error_.empty() ? text_ : str_cat("error: ", error_);
  }

  void wait_for_tokens(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] { return done_ || num_tokens_ >= count; });
  }

  ErrorCode code() const { return code_; }

  const std::vector<TokenLogprob>& logprobs() const { return logprobs_; }

  const Completion& completion() const { return completion_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  int64_t num_tokens_ = 0;
  std::vector<TokenLogprob> logprobs_;
  std::string error_;
  ErrorCode code_ = ErrorCode::kInternal;
  Completion completion_;
  bool done_ = false;
};

// Writes NaN over the first value of a tensor of a safetensors file.
inline void damage(const std::filesystem::path& path, const std::string& tensor) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const Json entry = Json::parse(header).at(tensor);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ASSERT_EQ(entry.at("dtype"), Json("F32"));
  file.seekp(static_cast<std::streamoff>(8 + header_bytes) + entry.at("data_offsets")[0].get_int());
  file.write(reinterpret_cast<const char*>(&nan), sizeof(nan));
}

struct Deployed {
  std::string checkpoint = "llama_untied";
  std::string kv;  // overrides of the KV resource, as JSON
  bool graph_capture = true;
  DType activation_dtype = DType::kF32;
  int64_t max_batch_tokens = 512;
  int64_t max_concurrent_requests = 32;
  std::string damaged_tensor{};  // has a NaN
  std::vector<RuntimeListener*> listeners{};
  std::chrono::milliseconds request_timeout{0};
  std::string tokenizer = word_tokenizer();  // as JSON
};

// A checkpoint of tests/golden/lm with a tokenizer beside it, being served.
class Served {
 public:
  explicit Served(const Deployed& setup) {
    static int count = 0;
    folder_ = std::filesystem::path(::testing::TempDir()) /
              str_cat("mstar_serving_", getpid(), "_", count++);
    std::filesystem::create_directories(folder_);
    const std::filesystem::path source = golden_folder() / "checkpoints" / setup.checkpoint;
    for (const auto& entry : std::filesystem::directory_iterator(source)) {
      if (setup.damaged_tensor.empty() || entry.path().extension() != ".safetensors") {
        std::filesystem::create_symlink(entry.path(), folder_ / entry.path().filename());
      } else {
        std::filesystem::copy_file(entry.path(), folder_ / entry.path().filename());
        std::filesystem::permissions(folder_ / entry.path().filename(),
                                     std::filesystem::perms::owner_all);
        damage(folder_ / entry.path().filename(), setup.damaged_tensor);
      }
    }
    std::ofstream(folder_ / "tokenizer.json") << setup.tokenizer;
    model_ = open_model(folder_.string(), Json::object());
    Deployment deployment;
    deployment.max_concurrent_requests = setup.max_concurrent_requests;
    if (!setup.kv.empty()) {
      deployment.resources["kv"] = Json::parse(setup.kv);
    }
    RuntimeOptions options;
    options.num_threads = 2;
    options.max_batch_tokens = setup.max_batch_tokens;
    options.max_queued_requests = 2000;
    options.listeners = setup.listeners;
    options.engine.graph_capture = setup.graph_capture;
    options.engine.activation_dtype = setup.activation_dtype;
    options.engine.require_captures = setup.graph_capture;
    runtime_ = std::make_unique<Runtime>(*model_, deployment, options);
    service_ = std::make_unique<Service>(
        *model_, runtime_->conductor(), ServiceOptions{.request_timeout = setup.request_timeout});
    pages_of_captures_ = pages_held();
  }

  ~Served() {
    service_.reset();
    runtime_.reset();
    model_.reset();
    std::filesystem::remove_all(folder_);
  }

  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  static std::filesystem::path golden_folder() {
    return std::filesystem::path(MSTAR_SOURCE_DIR) / "tests/golden/lm";
  }

  std::shared_ptr<Answer> ask(const std::string& prompt,
                              const std::string& parameters,
                              Service::Ticket* ticket = nullptr) {
    return chat({prompt}, parameters, ticket);
  }

  // A conversation: turns of user and assistant, one after the other.
  std::shared_ptr<Answer> chat(const std::vector<std::string>& turns,
                               const std::string& parameters,
                               Service::Ticket* ticket = nullptr) {
    ModelRequest request;
    request.request_id = str_cat("r", ++num_asked_);
    for (size_t index = 0; index < turns.size(); ++index) {
      request.messages.push_back(
          {index % 2 == 0 ? "user" : "assistant", {ContentPart{.text = turns[index]}}});
    }
    request.parameters = Json::parse(parameters);
    request.output_modalities = {Modality::kText};
    auto answer = std::make_shared<Answer>();
    const Service::Ticket own = service_->submit(std::move(request), answer, false);
    if (ticket != nullptr) {
      *ticket = own;
    }
    return answer;
  }

  // The worker forgets a request shortly after its client heard the end.
  void expect_empty() {
    ASSERT_TRUE(runtime_->conductor().drain(std::chrono::seconds(60)));
    for (const Scheduler::Stats& stats : runtime_->scheduler_stats()) {
      EXPECT_EQ(stats.num_requests, 0);
      EXPECT_EQ(stats.num_waiting_rows, 0);
      EXPECT_EQ(stats.num_live_payloads, 0);
    }
    EXPECT_EQ(pages_held(), pages_of_captures_);
    const Conductor::Stats stats = runtime_->conductor().stats();
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_queued, 0);
  }

  Scheduler::Stats stats() const { return runtime_->scheduler_stats().front(); }

  int64_t num_tokens(std::string_view walk) const {
    const Scheduler::Stats now = stats();
    for (const auto& node : now.nodes) {
      if (node.walk == walk) {
        return node.num_tokens;
      }
    }
    return 0;
  }

 private:
  // Pages in somebody's hands; what only the prefix index holds is free to be taken. The rows that
  // pad captures keep theirs.
  int64_t pages_held() const {
    int64_t held = 0;
    for (const KvUsage& cache : runtime_->kv_usage(0)) {
      held += cache.stats.num_pages - cache.stats.num_free - cache.stats.num_listed;
    }
    return held;
  }

  int64_t pages_of_captures_ = 0;
  std::filesystem::path folder_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Service> service_;
  int num_asked_ = 0;
};

}  // namespace mstar::testing
