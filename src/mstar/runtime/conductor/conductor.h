#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/graph/compile.h"
#include "mstar/graph/worker_split.h"
#include "mstar/runtime/events.h"
#include "mstar/runtime/listener.h"
#include "mstar/runtime/mailbox.h"
#include "mstar/runtime/worker/scheduler.h"

namespace mstar {

struct ConductorOptions {
  int64_t max_concurrent_requests = 32;  // on the workers; the next ones wait in order
  int64_t max_queued_requests = 256;     // waiting; more are refused
  std::vector<RuntimeListener*> listeners{};
};

// Leads every request along its walks: admits it, asks the model for the next walk of each
// partition, sends walks to the workers, hands what they emit to the request's sink, and takes
// everything back at the end, however it came.
//
// A thread of its own runs it; the public functions may be called from any thread.
class Conductor {
 public:
  // `workers[w]` is the scheduler of group w of the placements. All outlive the conductor.
  Conductor(const Model& model,
            const graph::CompiledModel& graph,
            std::vector<graph::WalkPlacement> placements,
            std::vector<Scheduler*> workers,
            ConductorOptions options);
  ~Conductor();  // cancels what is left and waits for it

  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  // Takes a request. Its sink hears exactly one kDone or kFailed, last. Throws
  // Error(kResourceExhausted) when the queue is full and Error(kUnavailable) while draining.
  // `is_continuation`: a further part of a request that was taken before; it is not refused for a
  // full queue.
  RequestKey submit(std::shared_ptr<const PreparedRequest> prepared,
                    std::shared_ptr<OutputSink> sink,
                    bool report_progress,
                    bool is_continuation = false);

  // Ends the request wherever it is; the sink hears kFailed with kCancelled. Unknown keys (it may
  // just have ended) are ignored.
  void cancel(RequestKey request);

  // Holds the request's next steps back, or lets it go on.
  void set_paused(RequestKey request, bool paused);

  // Refuses new requests, waits for the running ones at most so long, then cancels the rest.
  // True when all ended by themselves.
  bool drain(std::chrono::milliseconds timeout);

  // What workers report; never blocks.
  void on_worker_events(std::vector<WorkerEvent>& events);

  struct Stats {
    int64_t num_running = 0;
    int64_t num_queued = 0;
    int64_t num_done = 0;
    int64_t num_failed = 0;
    int64_t num_cancelled = 0;
    int64_t num_refused = 0;
    int64_t num_generated_tokens = 0;
    int64_t num_prompt_tokens = 0;
    int64_t num_walks = 0;
  };

  Stats stats() const;

 private:
  struct Request;
  struct PartitionState;

  struct Submitted {
    RequestKey key;
    std::shared_ptr<const PreparedRequest> prepared;
    std::shared_ptr<OutputSink> sink;
    bool report_progress;
  };

  struct Cancel {
    RequestKey key;
  };

  struct Pause {
    RequestKey key;
    bool paused;
  };

  struct CancelAll {};

  // A worker's events come as it reports them: those of one step together.
  using Message = std::variant<Submitted, Cancel, Pause, CancelAll, std::vector<WorkerEvent>>;

  void run();
  void handle(Message& message);
  void handle_events(std::vector<WorkerEvent>& events);
  void admit();
  void start(std::unique_ptr<Request> request);
  void handle_event(Request& request, WorkerEvent& event);
  void next_walk(Request& request, int partition, bool is_first);
  void start_walk(Request& request, int partition, ForwardPassArgs args);
  void end_partition(Request& request, int partition);
  void end_request(Request& request, OutputEvent last);
  void fail(Request& request, ErrorCode code, std::string message);
  void forget(RequestKey key);
  void notify(RequestKey key, const std::string& request_id, RequestPhase phase) const;

  const Model& model_;
  const graph::CompiledModel& graph_;
  const std::vector<graph::WalkPlacement> placements_;
  const std::vector<Scheduler*> workers_;
  const ConductorOptions options_;
  Mailbox<Message> mailbox_;

  // Conductor thread only.
  std::deque<Submitted> queue_;
  std::unordered_map<RequestKey, std::unique_ptr<Request>> requests_;
  int64_t num_new_tokens_ = 0;  // not yet among the counts

  mutable std::mutex mutex_;
  std::condition_variable all_gone_;
  // Guarded by mutex_.
  RequestKey next_key_ = 1;
  int64_t num_waiting_ = 0;  // submitted and not yet started
  int64_t num_known_ = 0;    // submitted and not yet gone
  bool draining_ = false;
  Stats stats_;

  std::thread thread_;
};

}  // namespace mstar
