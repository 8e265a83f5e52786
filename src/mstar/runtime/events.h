#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/engine/named_tensors.h"
#include "mstar/graph/edge.h"
#include "mstar/graph/signal.h"

namespace mstar {

// One request from its submission to its removal; never reused. The conductor gives it.
using RequestKey = uint64_t;

// ---- what a worker tells the conductor

// The worker holds what the request needs: its steps can run.
struct OpenedEvent {};

// A value for the client, and how many generated tokens came with it.
struct EmitEvent {
  graph::Modality modality = graph::Modality::kNone;
  std::string_view edge;  // lives in the compiled model
  TensorList tensors;
  int64_t num_tokens = 0;
  graph::LoopTime time;
};

// A value kept for a later walk.
struct PersistEvent {
  std::string_view edge;
  TensorList tensors;
};

// The worker's part of the partition's walk ended.
struct WalkDoneEvent {
  bool consumed_final_chunk = false;  // the stream the walk reads is over
};

// Generated tokens that nothing is emitted with.
struct TokensEvent {
  int64_t count = 0;
};

// A loop with a known bound went on.
struct ProgressEvent {
  std::string_view loop;
  int64_t iteration = 0;  // finished so far
  int64_t limit = 0;
};

// The request is lost; others go on.
struct FailureEvent {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

// The worker holds nothing of the request any more.
struct RemovedEvent {};

struct WorkerEvent {
  RequestKey request = 0;
  int worker = 0;
  int partition = 0;  // index into the model's topology
  std::variant<OpenedEvent,
               EmitEvent,
               PersistEvent,
               WalkDoneEvent,
               TokensEvent,
               ProgressEvent,
               FailureEvent,
               RemovedEvent>
      what;
};

// ---- what the conductor tells whoever submitted the request

struct OutputEvent {
  enum class Kind : uint8_t {
    kStarted,   // it waits no longer: all workers have opened it
    kEmit,      // tensors for the client
    kProgress,  // a loop went on
    kDone,      // the request ended by itself; last event
    kFailed,    // it did not; last event
  };

  Kind kind = Kind::kEmit;
  graph::Modality modality = graph::Modality::kNone;
  std::string_view name;  // edge, or loop
  TensorList tensors;
  int64_t iteration = 0;
  int64_t limit = 0;
  int64_t num_generated_tokens = 0;  // so far
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

// Receives one request's events, in order, on the conductor's thread: must return at once and
// must not call the conductor's waiting functions.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void on_output(OutputEvent event) = 0;
};

}  // namespace mstar
