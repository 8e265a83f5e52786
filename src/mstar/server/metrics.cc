#include "mstar/server/metrics.h"

#include "mstar/base/str_cat.h"

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

void MetricsText::sample(Labels labels, double value, std::string_view suffix) {
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
  text_ += str_cat(labels.size() > 0 ? "} " : " ", value, "\n");
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

void SecondsHistogram::append(MetricsText& out) const {
  int64_t count = 0;
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    count += counts_[bucket];
    const std::string bound = bucket < kBounds.size() ? str_cat(kBounds[bucket]) : "+Inf";
    out.sample({{"le", bound}}, static_cast<double>(count), "_bucket");
  }
  out.sample({}, sum_, "_sum");
  out.sample({}, static_cast<double>(count), "_count");
}

// Notes when things happen to one request. Called by one thread at a time, as every sink.
class Metrics::Meter : public ChunkSink {
 public:
  Meter(Metrics& metrics, std::shared_ptr<ChunkSink> inner)
      : metrics_(metrics), inner_(std::move(inner)) {}

  void on_chunk(OutputChunk chunk) override {
    const Clock::time_point now = Clock::now();
    {
      const std::lock_guard lock(metrics_.mutex_);
      if (!seen_any_) {
        metrics_.first_chunk_.add(seconds_between(begin_, now));
      } else if (chunk.num_tokens > 0) {
        metrics_.between_tokens_.add(seconds_between(last_, now));
      }
      ++metrics_.chunks_[graph::to_string(chunk.modality)];
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
      end(mstar::to_string(code));
    }
    inner_->on_error(code, message);
  }

 private:
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
};

void Metrics::count_http(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++http_[{std::string(route), status}];
}

std::shared_ptr<ChunkSink> Metrics::measure(std::shared_ptr<ChunkSink> inner) {
  {
    const std::lock_guard lock(mutex_);
    ++num_active_;
  }
  return std::make_shared<Meter>(*this, std::move(inner));
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
  out.begin("mstar_time_to_first_chunk_seconds", "histogram", "From request to first chunk.");
  first_chunk_.append(out);
  out.begin("mstar_inter_token_seconds", "histogram", "Between chunks of generated tokens.");
  between_tokens_.append(out);
  out.begin("mstar_request_seconds", "histogram", "From request to end.");
  end_to_end_.append(out);
}

}  // namespace mstar
