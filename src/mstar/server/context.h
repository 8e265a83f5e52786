#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "mstar/server/backend.h"
#include "mstar/server/image_store.h"
#include "mstar/server/media_access.h"
#include "mstar/server/metrics.h"

namespace mstar {

struct ApiOptions {
  std::string version = "0";
  int num_threads = 2;       // that read requests
  int64_t max_choices = 16;  // n, times the prompts of one request
  int64_t max_stored_jobs = 64;
  size_t max_stored_bytes = size_t{1} << 30;
  MediaAccessOptions media{};
  ImageStoreOptions images{};
  bool vllm_metrics = false;  // /metrics has vLLM's names too
};

// What all handlers share: the model once it is loaded, and counters. Thread-safe.
class ServerContext {
 public:
  explicit ServerContext(ApiOptions options);

  const ApiOptions& options() const { return options_; }

  Metrics& metrics() { return metrics_; }

  const MediaAccess& media() const { return media_; }

  // Pictures that were answered by URL.
  ImageStore& images() { return images_; }

  // Before this, requests are told that the model is loading.
  void set_backend(std::shared_ptr<Backend> backend);

  // From now on requests are refused.
  void set_draining() { draining_ = true; }

  // Why requests are refused now; "" when they are not.
  std::string unready_reason() const;

  // The model. Throws Error(kUnavailable) with the reason.
  std::shared_ptr<Backend> backend() const;
  // The model, or null while loading: for what works while draining too.
  std::shared_ptr<Backend> find_backend() const;

  // Throws ApiError(kNotFound, model_not_found) when a request asks for another model. An empty
  // name asks for the one there is.
  void check_model(const Backend& backend, std::string_view name) const;

  // "chatcmpl-0123456789abcdef…": random, so that nobody guesses another's.
  std::string new_id(std::string_view prefix);

 private:
  const ApiOptions options_;
  const MediaAccess media_;
  ImageStore images_;
  Metrics metrics_;
  std::atomic<bool> draining_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<Backend> backend_;  // guarded by mutex_
};

int64_t unix_seconds();

}  // namespace mstar
