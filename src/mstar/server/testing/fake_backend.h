#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "mstar/server/backend.h"

namespace mstar::testing {

// A backend whose answers the tests choose by the prompt's first word:
//   say A B C      three chunks "A ", "B ", "C", finish_reason stop
//   fail           an error before the first chunk;  fail-late  one after it
//   full           the queue is full
//   wait           one chunk, then nothing until it is cancelled
//   flood N        N chunks of 64 KiB, held back while it is paused
//   nothing        ends without a chunk
// Other output modalities get one chunk of bytes that look like it, after two steps of progress.
// Each request runs on a thread of its own. Thread-safe.
class FakeBackend final : public Backend {
 public:
  FakeBackend();
  ~FakeBackend() override;  // cancels what is left

  const ModelDescription& description() const override { return description_; }

  graph::ModelGraph graph() const override;
  // A token is a byte.
  std::vector<int32_t> tokenize(std::string_view text, bool add_special_tokens) const override;
  std::string detokenize(const std::vector<int32_t>& ids) const override;

  std::string prompt_text(const std::vector<int32_t>& ids) const override {
    return detokenize(ids);
  }

  std::shared_ptr<RunningRequest> submit(ModelRequest request,
                                         std::shared_ptr<ChunkSink> sink,
                                         bool report_progress) override;
  BackendStats stats() const override;
  void append_metrics(MetricsText& out) const override;

  // Block until so many requests were cancelled, or were paused, since the start.
  void wait_cancelled(int count);
  void wait_paused(int count);
  // Those submitted so far.
  std::vector<ModelRequest> requests() const;

 private:
  class Run;

  void note(int FakeBackend::*counter);

  ModelDescription description_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  int num_cancelled_ = 0;
  int num_paused_ = 0;
  std::vector<ModelRequest> requests_;
  std::vector<std::shared_ptr<Run>> runs_;
  std::vector<std::thread> threads_;
};

}  // namespace mstar::testing
