#include "mstar/server/testing/fake_backend.h"

#include "mstar/base/str_cat.h"
#include "mstar/server/metrics.h"

namespace mstar::testing {

namespace {

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  size_t begin = 0;
  while ((begin = text.find_first_not_of(" \n", begin)) != std::string::npos) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::string last_text(const ModelRequest& request) {
  std::string text;
  if (const Json* ids = request.parameters.find("prompt_token_ids")) {
    for (const Json& id : ids->get_array()) {
      text += static_cast<char>(id.get_int());
    }
  }
  for (const ContentPart& part : request.messages.back().content) {
    text += part.text;
  }
  return text;
}

OutputChunk text_chunk(std::string text) {
  OutputChunk chunk;
  chunk.data = std::move(text);
  chunk.num_tokens = 1;
  return chunk;
}

}  // namespace

// One request's thread and what others tell it.
class FakeBackend::Run final : public RunningRequest {
 public:
  Run(FakeBackend& backend, ModelRequest request, std::shared_ptr<ChunkSink> sink)
      : backend_(backend), request_(std::move(request)), sink_(std::move(sink)) {}

  void cancel() override {
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_ || over_) {
        return;
      }
      cancelled_ = true;
      changed_.notify_all();
    }
    backend_.note(&FakeBackend::num_cancelled_);
  }

  void set_paused(bool paused) override {
    {
      const std::lock_guard lock(mutex_);
      paused_ = paused;
      changed_.notify_all();
    }
    if (paused) {
      backend_.note(&FakeBackend::num_paused_);
    }
  }

  void run() {
    const std::vector<std::string> words = split_words(last_text(request_));
    const std::string command = words.empty() ? "" : words[0];
    if (request_.output_modalities.front() != Modality::kText) {
      make_media(request_.output_modalities.front());
    } else if (command == "fail") {
      end_with(ErrorCode::kInternal, "[fake] failed");
      return;
    } else if (command == "full") {
      end_with(ErrorCode::kResourceExhausted, "[fake] the queue is full");
      return;
    } else if (command == "fail-late") {
      sink_->on_chunk(text_chunk("first "));
      end_with(ErrorCode::kInternal, "[fake] failed late");
      return;
    } else if (command == "wait") {
      sink_->on_chunk(text_chunk("waiting"));
      wait_for_cancel();
    } else if (command == "flood") {
      flood(std::stoi(words.at(1)));
    } else if (command == "caption") {
      caption(words);
    } else if (command != "nothing") {
      say(words);
    }
    finish(static_cast<int64_t>(words.size()));
  }

 private:
  bool is_cancelled() {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  void wait_for_cancel() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return cancelled_; });
  }

  void say(const std::vector<std::string>& words) {
    for (size_t index = 1; index < words.size() && !is_cancelled(); ++index) {
      OutputChunk chunk = text_chunk(words[index] + (index + 1 < words.size() ? " " : ""));
      if (const Json* top = request_.parameters.find("logprobs")) {
        TokenLogprob& told = chunk.logprobs.emplace_back();
        told.token = {chunk.data, -0.5};
        for (int64_t rank = 0; rank < top->get_int(); ++rank) {
          told.top.push_back({str_cat("w", rank), -0.5 - static_cast<double>(rank)});
        }
      }
      sink_->on_chunk(std::move(chunk));
    }
  }

  // Every word a segment of one and a half seconds, the second one a minute later.
  void caption(const std::vector<std::string>& words) {
    for (size_t index = 1; index < words.size(); ++index) {
      const double start = 61.5 * static_cast<double>(index - 1);
      OutputChunk chunk = text_chunk(" " + words[index]);
      chunk.metadata = Json::object({{"start", start}, {"end", start + 1.5}, {"language", "en"}});
      sink_->on_chunk(std::move(chunk));
    }
  }

  void flood(int count) {
    for (int index = 0; index < count; ++index) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !paused_ || cancelled_; });
        if (cancelled_) {
          return;
        }
      }
      sink_->on_chunk(text_chunk(std::string(size_t{64} << 10, 'x')));
    }
  }

  void make_media(Modality modality) {
    sink_->on_progress("denoise", 1, 2);
    OutputChunk chunk;
    chunk.modality = modality;
    switch (modality) {
      case Modality::kImage:
        chunk.data = "\x89PNG fake";
        chunk.metadata = Json::object({{"width", 32}, {"height", 16}});
        break;
      case Modality::kAudio:
        chunk.data = std::string("\x01\x00\x02\x00", 4);
        chunk.metadata = Json::object({{"sample_rate", 16000}, {"num_channels", 1}});
        break;
      default: chunk.data = "fake video"; break;
    }
    if (last_text(request_) == "wait") {
      wait_for_cancel();
      return;
    }
    sink_->on_chunk(std::move(chunk));
  }

  void finish(int64_t num_words) {
    if (is_cancelled()) {
      end_with(ErrorCode::kCancelled, "[fake] cancelled");
      return;
    }
    mark_over();
    sink_->on_done({.finish_reason = "stop",
                    .num_prompt_tokens = num_words,
                    .num_generated_tokens = std::max<int64_t>(num_words - 1, 0)});
  }

  void end_with(ErrorCode code, const std::string& message) {
    mark_over();
    sink_->on_error(code, message);
  }

  void mark_over() {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }

  FakeBackend& backend_;
  const ModelRequest request_;
  const std::shared_ptr<ChunkSink> sink_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  bool paused_ = false;
  bool over_ = false;
};

FakeBackend::FakeBackend() {
  using Type = RequestParameter::Type;
  description_.name = "fake";
  description_.family = "fake";
  description_.input_modalities = {
      Modality::kText, Modality::kImage, Modality::kAudio, Modality::kVideo};
  description_.output_modalities = {
      Modality::kText, Modality::kImage, Modality::kAudio, Modality::kVideo};
  description_.max_model_len = 1000;
  description_.parameters = ParameterTable({
      {.name = "max_tokens", .fallback = 16, .min = 1, .aliases = {"max_completion_tokens"}},
      {.name = "temperature", .type = Type::kFloat, .fallback = 1.0, .min = 0.0, .max = 2.0},
      {.name = "seed", .min = 0},
      {.name = "stop", .type = Type::kAny},
      {.name = "logprobs", .min = 0, .max = 20},
      {.name = "prompt_token_ids", .type = Type::kIntList, .min = 0, .max = 255},
      {.name = "width", .min = 16, .max = 4096, .unit = "pixels"},
      {.name = "height", .min = 16, .max = 4096, .unit = "pixels"},
  });
}

FakeBackend::~FakeBackend() {
  std::vector<std::shared_ptr<Run>> runs;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    runs.swap(runs_);
    threads.swap(threads_);
  }
  for (const auto& run : runs) {
    run->cancel();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

graph::ModelGraph FakeBackend::graph() const {
  using namespace graph;  // NOLINT: the words of a declaration
  return {
      .walks = {walk(
          "answer",
          {"text_inputs"},
          node("LLM").needs({"text_inputs"}).makes(edge("new_token").to_client(Modality::kText)))}};
}

std::vector<int32_t> FakeBackend::tokenize(std::string_view text, bool add_special_tokens) const {
  std::vector<int32_t> ids;
  if (add_special_tokens) {
    ids.push_back(256);
  }
  for (const char letter : text) {
    ids.push_back(static_cast<unsigned char>(letter));
  }
  return ids;
}

std::string FakeBackend::detokenize(const std::vector<int32_t>& ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 256) {
      text += static_cast<char>(id);
    }
  }
  return text;
}

std::shared_ptr<RunningRequest> FakeBackend::submit(ModelRequest request,
                                                    std::shared_ptr<ChunkSink> sink,
                                                    bool) {
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  auto run = std::make_shared<Run>(*this, std::move(request), std::move(sink));
  runs_.push_back(run);
  threads_.emplace_back([run] { run->run(); });
  return run;
}

BackendStats FakeBackend::stats() const {
  return {.num_running = 1,
          .num_waiting = 2,
          .caches = {{.name = "kv", .num_pages = 8, .num_free = 6, .num_prefix_hits = 3}}};
}

void FakeBackend::append_metrics(MetricsText& out) const {
  out.add("fake_requests", "gauge", "Requests so far.", static_cast<double>(requests().size()));
}

void FakeBackend::note(int FakeBackend::*counter) {
  const std::lock_guard lock(mutex_);
  ++(this->*counter);
  changed_.notify_all();
}

void FakeBackend::wait_cancelled(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_cancelled_ >= count; });
}

void FakeBackend::wait_paused(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_paused_ >= count; });
}

std::vector<ModelRequest> FakeBackend::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

}  // namespace mstar::testing
