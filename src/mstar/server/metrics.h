#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "mstar/runtime/service.h"

namespace mstar {

// Builds Prometheus text: each metric's HELP and TYPE once, then its samples. One thread.
class MetricsText {
 public:
  using Label = std::pair<std::string_view, std::string_view>;
  using Labels = std::initializer_list<Label>;

  // Begins a metric; `type` is counter, gauge or histogram.
  void begin(std::string_view name, std::string_view type, std::string_view help);

  void sample(Labels labels, double value, std::string_view suffix = "") {
    sample(std::span(labels.begin(), labels.size()), value, suffix);
  }

  void sample(std::span<const Label> labels, double value, std::string_view suffix = "");
  // A metric with one sample.
  void add(std::string_view name, std::string_view type, std::string_view help, double value);

  const std::string& text() const { return text_; }

 private:
  std::string name_;
  std::string text_;
};

// Counts of seconds in fixed buckets from 1 ms to 10 min. Thread-compatible.
class SecondsHistogram {
 public:
  void add(double seconds);
  // `labels` go before the bucket's own.
  void append(MetricsText& out, MetricsText::Labels labels = {}) const;

 private:
  static constexpr std::array kBounds = {0.001,
                                         0.0025,
                                         0.005,
                                         0.01,
                                         0.025,
                                         0.05,
                                         0.1,
                                         0.25,
                                         0.5,
                                         1.0,
                                         2.5,
                                         5.0,
                                         10.0,
                                         30.0,
                                         60.0,
                                         120.0,
                                         300.0,
                                         600.0};

  std::array<int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0.0;
};

// What the server counts of its requests. Thread-safe.
class Metrics {
 public:
  void count_http(std::string_view route, int status);

  // Media of a client that could not be read; `format` as its first bytes say.
  void count_media_failure(std::string_view format);

  // A sink that measures `request` on its way to `inner`.
  std::shared_ptr<ChunkSink> measure(const ModelRequest& request, std::shared_ptr<ChunkSink> inner);

  void append(MetricsText& out) const;

  // The same facts by the names that vLLM gives them, as far as it has any.
  void append_vllm(MetricsText& out, std::string_view model) const;

  // Tokens that answers have brought so far.
  int64_t num_generated_tokens() const;

 private:
  class Meter;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::pair<std::string, int>, int64_t> http_;
  std::map<std::string, int64_t> finished_;  // by finish reason or error code
  int64_t num_active_ = 0;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_generated_tokens_ = 0;
  std::map<std::string, int64_t> chunks_;                       // by modality
  std::map<std::string, int64_t, std::less<>> media_failures_;  // by format
  int64_t num_streamed_tokens_ = 0;                             // of running answers too
  int64_t num_pixels_ = 0;
  int64_t num_frames_ = 0;
  double audio_seconds_ = 0.0;
  SecondsHistogram queue_;
  SecondsHistogram first_chunk_;
  SecondsHistogram between_tokens_;
  SecondsHistogram end_to_end_;
};

}  // namespace mstar
