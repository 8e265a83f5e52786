#include "mstar/cli/run_sink.h"

#include <cstdio>

namespace mstar {

void RunSink::on_chunk(OutputChunk chunk) {
  const std::lock_guard lock(mutex_);
  if (result_.first_chunk_seconds == 0.0) {
    result_.first_chunk_seconds = elapsed();
  }
  if (chunk.modality != Modality::kText) {
    if (chunk.modality != wanted_) {
      return;
    }
    result_.media += chunk.data;
    result_.metadata = chunk.metadata;
    return;
  }
  result_.text += chunk.data;
  if (print_ && !chunk.data.empty()) {
    bar_.clear();
    std::fwrite(chunk.data.data(), 1, chunk.data.size(), stdout);
    std::fflush(stdout);
  }
}

void RunSink::on_progress(std::string_view loop, int64_t iteration, int64_t limit) {
  if (limit > 0 && !print_) {  // a text being printed is progress enough
    bar_.show(loop, iteration, limit, "steps");
  }
}

void RunSink::on_done(const Completion& completion) {
  const std::lock_guard lock(mutex_);
  result_.completion = completion;
  result_.seconds = elapsed();
  ended_ = true;
  changed_.notify_all();
}

void RunSink::on_error(ErrorCode code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  error_.emplace(code, message);
  ended_ = true;
  changed_.notify_all();
}

RunResult RunSink::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_; });
  bar_.clear();
  if (error_) {
    throw *error_;
  }
  return result_;
}

}  // namespace mstar
