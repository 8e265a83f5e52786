#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "mstar/runtime/listener.h"

namespace mstar {

// Writes what the runtime does as a Chrome trace ("JSON array format", read by chrome://tracing and
// Perfetto): a process for each worker with a row for each node, a slice for each step; and a
// process "requests" with a row for each request from its submission to its end. Thread-safe.
class TraceWriter final : public RuntimeListener {
 public:
  // Throws Error(kUnavailable) when the file cannot be written.
  explicit TraceWriter(const std::string& path);
  ~TraceWriter() override;  // ends the document

  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void on_step(const StepRecord& step) override;
  void on_request(RequestKey request, const std::string& request_id, RequestPhase phase) override;

 private:
  void write(const std::string& event);
  int row_of(int worker, std::string_view node);

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  // Guarded by mutex_.
  std::FILE* file_ = nullptr;
  bool is_first_ = true;
  std::map<std::pair<int, std::string>, int> rows_;  // (worker, node)
};

}  // namespace mstar
