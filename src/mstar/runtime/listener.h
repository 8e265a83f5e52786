#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mstar/runtime/events.h"

namespace mstar {

// One step that a worker ran.
struct StepRecord {
  int worker = 0;
  std::string_view node;  // names live in the compiled model
  std::string_view walk;
  std::span<const RequestKey> requests;  // its rows
  std::chrono::steady_clock::time_point begin;
  double seconds = 0.0;         // whole step
  double kernel_seconds = 0.0;  // forwards alone
  int64_t num_tokens = 0;
  bool captured = false;  // replayed
};

enum class RequestPhase : uint8_t { kQueued, kStarted, kDone, kFailed, kCancelled };

const char* to_string(RequestPhase phase);

// Watches what the runtime does: for traces and the page. Its functions are called by the workers'
// and the conductor's threads, several at once, between two steps: they must return at once and not
// call the runtime.
class RuntimeListener {
 public:
  virtual ~RuntimeListener() = default;

  virtual void on_step(const StepRecord& /*step*/) {}

  // `request_id` is the client's.
  virtual void on_request(RequestKey /*request*/,
                          const std::string& /*request_id*/,
                          RequestPhase /*phase*/) {}
};

}  // namespace mstar
