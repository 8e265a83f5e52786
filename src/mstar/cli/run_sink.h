#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/cli/progress_bar.h"
#include "mstar/runtime/service.h"

namespace mstar {

// The answer to one request of this process.
struct RunResult {
  std::string text;
  std::string media;  // of the other modality
  Json metadata = Json::object();
  Completion completion;
  double first_chunk_seconds = 0.0;
  double seconds = 0.0;
};

// Prints text as it comes and waits for the end. The model's threads write, the main one waits.
class RunSink final : public ChunkSink {
 public:
  // `wanted`: of the media that come, the one that is kept.
  RunSink(ProgressBar& bar, Modality wanted, bool print)
      : bar_(bar), wanted_(wanted), print_(print) {}

  void on_chunk(OutputChunk chunk) override;
  void on_progress(std::string_view loop, int64_t iteration, int64_t limit) override;
  void on_done(const Completion& completion) override;
  void on_error(ErrorCode code, const std::string& message) override;

  // Throws the error that ended the request. What was printed by then is in text().
  RunResult wait();

  // After wait().
  const std::string& text() const { return result_.text; }

 private:
  using Clock = std::chrono::steady_clock;

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  ProgressBar& bar_;
  const Modality wanted_;
  const bool print_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  RunResult result_;
  std::optional<Error> error_;
  bool ended_ = false;
};

}  // namespace mstar
