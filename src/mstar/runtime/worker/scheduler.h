#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/engine/step_batch.h"
#include "mstar/graph/compile.h"
#include "mstar/graph/readiness.h"
#include "mstar/graph/stream_buffer.h"
#include "mstar/graph/worker_split.h"
#include "mstar/runtime/events.h"
#include "mstar/runtime/listener.h"

namespace mstar {

// What the scheduler must know about the nodes of its worker. All const after load.
struct NodePolicy {
  std::function<int(std::string_view node, std::string_view walk)> max_batch_size;
  std::function<bool(std::string_view node, std::string_view walk)> supports_chunked_prefill;
  // Requests of one batch must agree on this; empty text where keys are not split.
  std::function<std::string(std::string_view node, const CurrentForwardPassInfo& info)> split_key;
};

struct SchedulerOptions {
  int worker = 0;
  int64_t max_batch_tokens = 512;  // of a prefill step; longer ones run in chunks
  int64_t stream_capacity = 16;    // chunks a streaming edge holds
  std::vector<RuntimeListener*> listeners{};
};

// A walk to run: what the conductor sends to every worker that hosts one of its nodes.
struct StartWalk {
  RequestKey request = 0;
  int partition = 0;
  uint16_t walk = 0;  // index into CompiledModel::walks
  uint32_t pass = 0;
  std::shared_ptr<CurrentForwardPassInfo> info;  // handle is filled in by the worker
  NamedTensors inputs;
  std::vector<std::pair<std::string, int64_t>> loop_limits;
  bool report_progress = false;
};

// Something on its way to another worker.
struct RemoteMessage {
  enum class Kind : uint8_t {
    kValue,       // what edge `id` of the partition's walk carries
    kStop,        // loop `id` of it ends
    kStreamItem,  // one item of connection `id`
    kBlocked,     // connection `id` is full: the producing partition waits …
    kUnblocked,   // … and goes on
  };

  Kind kind = Kind::kValue;
  int worker = 0;  // destination
  RequestKey request = 0;
  int partition = 0;
  uint16_t id = graph::kNoId;
  graph::LoopTime time;
  bool is_trigger = false;
  TensorList tensors;
};

// Something the executor must do between steps.
struct ExecutorCommand {
  enum class Kind : uint8_t { kOpen, kRemove } kind = Kind::kOpen;
  RequestKey request = 0;
  RequestHandle handle = -1;                        // kRemove
  std::shared_ptr<const PreparedRequest> prepared;  // kOpen
};

// Decides what a worker runs next: which nodes are ready, which requests run together, whose turn
// it is. Two threads meet here under one lock: the conductor brings walks and takes them back, the
// executor asks for the next step and reports how it went. Between two steps the executor
// finds everything it needs without waking anybody: on a device whose steps are over when they
// return there is nothing to speculate about.
//
// Fairness: each (node, walk) has run for some time; the ready one that has run least is next, so
// a long denoise step and a short decode step get equal shares. Within it, requests go in the
// order in which they became ready.
//
// Thread-safe.
class Scheduler {
 public:
  using EventSink = std::function<void(std::vector<WorkerEvent>&)>;
  using RemoteSink = std::function<void(std::vector<RemoteMessage>&)>;

  // `placements[w]` is walk w's spread over workers; `events` and `remote` are called without the
  // lock held.
  Scheduler(const graph::CompiledModel& model,
            std::vector<graph::WalkPlacement> placements,
            NodePolicy policy,
            SchedulerOptions options,
            EventSink events,
            RemoteSink remote);
  ~Scheduler();

  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // ---- conductor

  void open(RequestKey request, std::shared_ptr<const PreparedRequest> prepared);
  void start_walk(StartWalk start);
  // No more items come on the edge: the producing partition is done.
  void close_stream(RequestKey request, std::string_view edge);
  // Stops running the request and gives everything back; ends with a RemovedEvent. Safe at any
  // time and more than once.
  void remove(RequestKey request);
  // A paused request's nodes are not started (its client does not read).
  void set_paused(RequestKey request, bool paused);

  // ---- other workers

  void deliver(RemoteMessage message);

  // ---- executor

  using Work = std::variant<std::monostate, ExecutorCommand, StepBatch>;

  // The next thing to do; waits for it. monostate: stop() was called and nothing is left to undo.
  Work next();

  // How an opening went.
  void opened(RequestKey request, RequestHandle handle);
  // There is no room for the request now: it opens when another one has gone.
  void open_later(ExecutorCommand command);
  void open_failed(RequestKey request, ErrorCode code, std::string message);
  void removed(RequestKey request);

  // Takes the batch back: routes outputs, advances walks.
  void complete(StepBatch batch);

  // ---- any thread

  void stop();

  struct Stats {
    int64_t num_requests = 0;
    int64_t num_waiting_rows = 0;  // ready, not running
    int64_t num_live_payloads = 0;

    struct NodeTime {
      std::string node;
      std::string walk;
      int64_t num_steps = 0;
      int64_t num_rows = 0;
      int64_t num_tokens = 0;
      double seconds = 0.0;
      double kernel_seconds = 0.0;
    };

    std::vector<NodeTime> nodes;
    int64_t num_captured_steps = 0;
    int64_t num_eager_steps = 0;
    int64_t num_wasted_rows = 0;    // of requests that ended while their step ran
    int64_t num_deferred_rows = 0;  // that a resource refused for the time being
    int64_t num_remote_bytes = 0;   // of tensors sent to other workers
  };

  Stats stats() const;

 private:
  struct WalkRun;  // one request's walk in one partition
  struct ActiveRequest;
  struct Candidate;
  struct Share;

  ActiveRequest* find(RequestKey request);
  void begin_walk(ActiveRequest& request, StartWalk start);
  void deliver_locked(ActiveRequest& request, RemoteMessage& message);
  void offer_chunks(ActiveRequest& request, WalkRun& run);
  bool try_make_batch(StepBatch& batch);
  void collect(ActiveRequest& request);
  void add_row(const Candidate& candidate, BatchRow& row);
  void complete_row(StepBatch& batch, BatchRow& row, WalkRun& run, ActiveRequest& request);
  void stop_loops(WalkRun& run, ActiveRequest& request, uint16_t node, const BatchRow& row);
  void finish_node(WalkRun& run, ActiveRequest& request, uint16_t node, BatchRow& row);
  void route(ActiveRequest& request, WalkRun& run, graph::Routing& routing);
  void push_stream(ActiveRequest& request,
                   int partition,
                   const graph::CompiledEdge& edge,
                   TensorList tensors);
  void push_item(ActiveRequest& request, uint16_t connection, TensorList tensors);
  void retry_items(ActiveRequest& request, uint16_t connection);
  void after_change(ActiveRequest& request, WalkRun& run);
  void fail(ActiveRequest& request, ErrorCode code, std::string message);
  void begin_removal(ActiveRequest& request);
  void break_deadlock();
  void flush(std::unique_lock<std::mutex>& lock);
  void add_event(RequestKey request, int partition, decltype(WorkerEvent::what) what);
  Share& share_of(uint16_t model_node, uint16_t walk);

  // One streaming edge between partitions, resolved once.
  struct StreamEnd {
    std::string edge;
    int from = 0;  // partition
    int to = 0;
    std::string node;   // consumer
    std::string input;  // its name for the stream
    graph::ChunkPolicy policy;
    std::vector<int> producers;  // workers that host a node of the producing partition
    int consumer = 0;            // worker
  };

  void resolve_streams();
  int worker_of(int partition, std::string_view node) const;

  const graph::CompiledModel& model_;
  const std::vector<graph::WalkPlacement> placements_;
  const NodePolicy policy_;
  const SchedulerOptions options_;
  const EventSink events_;
  const RemoteSink remote_;

  std::vector<StreamEnd> streams_;  // by connection

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All below: guarded by mutex_.
  graph::PayloadTable<Tensor> payloads_;
  std::unordered_map<RequestKey, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<ExecutorCommand> commands_;
  std::vector<ExecutorCommand> waiting_opens_;             // in order of arrival
  std::map<std::pair<uint16_t, uint16_t>, Share> shares_;  // (model node, walk)
  std::vector<ActiveRequest*> by_handle_;                  // null: no request has the handle
  std::vector<WorkerEvent> pending_events_;
  std::vector<RemoteMessage> pending_remote_;
  // Kept for their memory: a step of many requests would ask for it again and again.
  std::vector<Candidate> candidates_;
  std::vector<graph::Signal> signals_;
  graph::Routing routing_;
  uint64_t next_ready_order_ = 1;
  uint64_t epoch_ = 1;  // grows when a refused row may fit now
  bool running_ = false;
  bool stop_ = false;
  int64_t num_captured_steps_ = 0;
  int64_t num_eager_steps_ = 0;
  int64_t num_wasted_rows_ = 0;
  int64_t num_deferred_rows_ = 0;
  int64_t num_remote_bytes_ = 0;

  StepBatch spare_batch_;  // the last one, reset. Executor thread; not guarded
};

}  // namespace mstar
