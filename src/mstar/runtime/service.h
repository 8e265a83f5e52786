#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mstar/engine/model.h"
#include "mstar/runtime/alarm.h"
#include "mstar/runtime/conductor/conductor.h"
#include "mstar/runtime/work_queue.h"

namespace mstar {

// How a request ended well.
struct Completion {
  std::string finish_reason;  // "stop" or "length"
  int64_t num_prompt_tokens = 0;
  int64_t num_generated_tokens = 0;
};

// Receives one request's answer in the client's terms. Called on the service's threads, one call
// at a time and in order; exactly one of on_done and on_error comes last. Must not block for long:
// a slow client is told through Ticket::set_paused.
class ChunkSink {
 public:
  virtual ~ChunkSink() = default;
  // Called first, once the request waits no longer. Not when it ends before.
  virtual void on_started();
  virtual void on_chunk(OutputChunk chunk) = 0;
  virtual void on_progress(std::string_view loop, int64_t iteration, int64_t limit);
  virtual void on_done(const Completion& completion) = 0;
  virtual void on_error(ErrorCode code, const std::string& message) = 0;
};

struct ServiceOptions {
  int num_threads = 2;  // that read prompts and encode outputs
  // A request that has not ended after so long ends with kUnavailable; 0: never.
  std::chrono::milliseconds request_timeout{0};
};

// From a client's request to its answer: reads the prompt, runs it, turns what comes out into
// chunks. What the server and `mstar run` talk to. Thread-safe.
class Service {
 public:
  // Both outlive the service.
  Service(const Model& model, Conductor& conductor, ServiceOptions options = {});
  ~Service();  // waits for what still runs

  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  class Session;

  // One running request. Dropping it changes nothing; cancel() ends the request wherever it is.
  class Ticket {
   public:
    Ticket() = default;
    void cancel();
    void set_paused(bool paused);

   private:
    friend class Service;

    explicit Ticket(std::shared_ptr<Session> session) : session_(std::move(session)) {}

    std::shared_ptr<Session> session_;
  };

  // Never throws for what the request is: everything that goes wrong comes to the sink.
  Ticket submit(ModelRequest request, std::shared_ptr<ChunkSink> sink, bool report_progress);

  const Model& model() const { return model_; }

 private:
  const Model& model_;
  Conductor& conductor_;
  WorkQueue queue_;
  std::unique_ptr<Alarm> alarm_;  // null: requests may take as long as they want
};

}  // namespace mstar
