#include "mstar/server/metrics.h"

#include <cmath>

#include "mstar/base/str_cat.h"
#include "mstar/engine/finite.h"
#include "mstar/server/encoding.h"

namespace mstar {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

void MetricsText::begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += str_cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void MetricsText::sample(std::span<const Label> labels, double value, std::string_view suffix) {
  text_ += name_;
  text_ += suffix;
  char separator = '{';
  for (const auto& [key, label] : labels) {
    text_ += str_cat(separator, key, "=\"");
    for (const char letter : label) {
      if (letter == '"' || letter == '\\') {
        text_ += '\\';
      }
      text_ += letter == '\n' ? ' ' : letter;
    }
    text_ += '"';
    separator = ',';
  }
  text_ += labels.empty() ? " " : "} ";
  // Whole numbers in full: counters of bytes must not lose their last digits.
  constexpr double kExact = 9007199254740992.0;
  if (value == std::floor(value) && std::abs(value) <= kExact) {
    text_ += str_cat(static_cast<int64_t>(value), "\n");
  } else {
    text_ += str_cat(value, "\n");
  }
}

void MetricsText::add(std::string_view name,
                      std::string_view type,
                      std::string_view help,
                      double value) {
  begin(name, type, help);
  sample({}, value);
}

void SecondsHistogram::add(double seconds) {
  size_t bucket = 0;
  while (bucket < kBounds.size() && seconds > kBounds[bucket]) {
    ++bucket;
  }
  ++counts_[bucket];
  sum_ += seconds;
}

void SecondsHistogram::append(MetricsText& out, MetricsText::Labels labels) const {
  int64_t count = 0;
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    count += counts_[bucket];
    const std::string bound = bucket < kBounds.size() ? str_cat(kBounds[bucket]) : "+Inf";
    std::vector<MetricsText::Label> all(labels);
    all.emplace_back("le", bound);
    out.sample(all, static_cast<double>(count), "_bucket");
  }
  out.sample(labels, sum_, "_sum");
  out.sample(labels, static_cast<double>(count), "_count");
}

namespace {

int64_t number_of(const Json& metadata, std::string_view name, int64_t fallback) {
  const Json* value = metadata.is_object() ? metadata.find(name) : nullptr;
  return value != nullptr && value->is_integer() ? value->get_int() : fallback;
}

}  // namespace

// Notes when things happen to one request. Called by one thread at a time, as every sink.
class Metrics::Meter : public ChunkSink {
 public:
  Meter(Metrics& metrics, const ModelRequest& request, std::shared_ptr<ChunkSink> inner)
      : metrics_(metrics), inner_(std::move(inner)) {
    for (const MediaItem& media : request.media) {
      formats_.push_back(media_format(*media.bytes));
    }
  }

  void on_started() override {
    {
      const std::lock_guard lock(metrics_.mutex_);
      metrics_.queue_.add(seconds_between(begin_, Clock::now()));
    }
    inner_->on_started();
  }

  void on_chunk(OutputChunk chunk) override {
    const Clock::time_point now = Clock::now();
    {
      const std::lock_guard lock(metrics_.mutex_);
      if (!seen_any_) {
        metrics_.first_chunk_.add(seconds_between(begin_, now));
      } else if (chunk.num_tokens > 0) {
        metrics_.between_tokens_.add(seconds_between(last_, now));
      }
      count(chunk);
    }
    seen_any_ = true;
    last_ = now;
    inner_->on_chunk(std::move(chunk));
  }

  void on_progress(std::string_view loop, int64_t iteration, int64_t limit) override {
    inner_->on_progress(loop, iteration, limit);
  }

  void on_done(const Completion& completion) override {
    {
      const std::lock_guard lock(metrics_.mutex_);
      end(completion.finish_reason);
      metrics_.num_prompt_tokens_ += completion.num_prompt_tokens;
      metrics_.num_generated_tokens_ += completion.num_generated_tokens;
    }
    inner_->on_done(completion);
  }

  void on_error(ErrorCode code, const std::string& message) override {
    {
      const std::lock_guard lock(metrics_.mutex_);
      const bool not_finite = message.find(kNotFinite) != std::string::npos;
      end(not_finite ? "not_finite" : mstar::to_string(code));
      if (code == ErrorCode::kUnsupportedMedia) {
        for (const std::string& format : formats_) {
          ++metrics_.media_failures_[format];
        }
      }
    }
    inner_->on_error(code, message);
  }

 private:
  void count(const OutputChunk& chunk) {
    ++metrics_.chunks_[graph::to_string(chunk.modality)];
    metrics_.num_streamed_tokens_ += chunk.num_tokens;
    const int64_t num_pixels =
        number_of(chunk.metadata, "width", 0) * number_of(chunk.metadata, "height", 0);
    if (chunk.modality == Modality::kImage) {
      metrics_.num_pixels_ += num_pixels;
    } else if (chunk.modality == Modality::kVideo) {
      const int64_t num_frames = number_of(chunk.metadata, "num_frames", 0);
      metrics_.num_frames_ += num_frames;
      metrics_.num_pixels_ += num_frames * num_pixels;
    } else if (chunk.modality == Modality::kAudio) {
      const int64_t rate = number_of(chunk.metadata, "sample_rate", 0);
      const int64_t channels = number_of(chunk.metadata, "num_channels", 1);
      if (rate > 0 && channels > 0) {
        metrics_.audio_seconds_ +=
            static_cast<double>(chunk.data.size()) / static_cast<double>(2 * rate * channels);
      }
    }
  }

  void end(const std::string& reason) {
    --metrics_.num_active_;
    ++metrics_.finished_[reason];
    metrics_.end_to_end_.add(seconds_between(begin_, Clock::now()));
  }

  Metrics& metrics_;
  const std::shared_ptr<ChunkSink> inner_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_;
  bool seen_any_ = false;
  std::vector<std::string> formats_;  // of the media that the client sent
};

void Metrics::count_media_failure(std::string_view format) {
  const std::lock_guard lock(mutex_);
  ++media_failures_[std::string(format)];
}

int64_t Metrics::num_generated_tokens() const {
  const std::lock_guard lock(mutex_);
  return num_streamed_tokens_;
}

void Metrics::count_http(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++http_[{std::string(route), status}];
}

std::shared_ptr<ChunkSink> Metrics::measure(const ModelRequest& request,
                                            std::shared_ptr<ChunkSink> inner) {
  {
    const std::lock_guard lock(mutex_);
    ++num_active_;
  }
  return std::make_shared<Meter>(*this, request, std::move(inner));
}

void Metrics::append(MetricsText& out) const {
  const std::lock_guard lock(mutex_);
  out.begin("mstar_http_requests_total", "counter", "HTTP requests by route and status.");
  for (const auto& [key, count] : http_) {
    out.sample({{"route", key.first}, {"status", str_cat(key.second)}}, static_cast<double>(count));
  }
  out.begin("mstar_requests_total", "counter", "Ended requests by finish reason or error.");
  for (const auto& [reason, count] : finished_) {
    out.sample({{"reason", reason}}, static_cast<double>(count));
  }
  out.begin("mstar_chunks_total", "counter", "Pieces of answers by modality.");
  for (const auto& [modality, count] : chunks_) {
    out.sample({{"modality", modality}}, static_cast<double>(count));
  }
  out.add("mstar_requests_active",
          "gauge",
          "Requests submitted and not ended.",
          static_cast<double>(num_active_));
  out.add("mstar_prompt_tokens_total",
          "counter",
          "Prompt tokens of answered requests.",
          static_cast<double>(num_prompt_tokens_));
  out.add("mstar_generated_tokens_total",
          "counter",
          "Generated tokens of answered requests.",
          static_cast<double>(num_generated_tokens_));
  const auto counter = [&](std::string_view name, std::string_view help, double value) {
    out.add(name, "counter", help, value);
  };
  counter("mstar_streamed_tokens_total",
          "Generated tokens, of running answers too.",
          static_cast<double>(num_streamed_tokens_));
  counter("mstar_pixels_total", "Pixels of pictures and frames.", static_cast<double>(num_pixels_));
  counter("mstar_frames_total", "Frames of videos.", static_cast<double>(num_frames_));
  counter("mstar_audio_seconds_total", "Seconds of sound made.", audio_seconds_);
  out.begin("mstar_media_failures_total", "counter", "Media that could not be read, by format.");
  for (const auto& [format, count] : media_failures_) {
    out.sample({{"format", format}}, static_cast<double>(count));
  }
  out.begin("mstar_queue_seconds", "histogram", "From request to its first step being possible.");
  queue_.append(out);
  out.begin("mstar_time_to_first_chunk_seconds", "histogram", "From request to first chunk.");
  first_chunk_.append(out);
  out.begin("mstar_inter_token_seconds", "histogram", "Between chunks of generated tokens.");
  between_tokens_.append(out);
  out.begin("mstar_request_seconds", "histogram", "From request to end.");
  end_to_end_.append(out);
}

void Metrics::append_vllm(MetricsText& out, std::string_view model) const {
  const std::lock_guard lock(mutex_);
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    out.begin(name, "counter", help);
    out.sample({{"model_name", model}}, static_cast<double>(value));
  };
  counter("vllm:prompt_tokens_total", "Prompt tokens of answered requests.", num_prompt_tokens_);
  counter("vllm:generation_tokens_total",
          "Generated tokens of answered requests.",
          num_generated_tokens_);
  out.begin("vllm:request_success_total", "counter", "Answered requests by finish reason.");
  for (const auto& [reason, count] : finished_) {
    if (reason == "stop" || reason == "length") {
      out.sample({{"model_name", model}, {"finished_reason", reason}}, static_cast<double>(count));
    }
  }
  const auto histogram =
      [&](std::string_view name, std::string_view help, const SecondsHistogram& of) {
        out.begin(name, "histogram", help);
        of.append(out, {{"model_name", model}});
      };
  histogram("vllm:time_to_first_token_seconds", "From request to first chunk.", first_chunk_);
  histogram("vllm:inter_token_latency_seconds", "Between generated tokens.", between_tokens_);
  histogram("vllm:time_per_output_token_seconds", "The same by its older name.", between_tokens_);
  histogram("vllm:e2e_request_latency_seconds", "From request to end.", end_to_end_);
  histogram("vllm:request_queue_time_seconds", "Waiting time.", queue_);
}

}  // namespace mstar
