#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/engine/forward_pass.h"
#include "mstar/engine/named_tensors.h"
#include "mstar/resources/step.h"

namespace mstar {

// How one request fared in a step.
enum class RowStatus : uint8_t {
  kPending,   // not run yet
  kDone,      // outputs are there
  kVetoed,    // prepare_inputs declined: the node completes without outputs
  kPartial,   // a chunk of its prefill ran: run the node again with the same inputs
  kDeferred,  // a resource refused it for now: nothing happened, try again later
  kFailed,    // `error_*` says why; the request is lost, the others go on
};

// One request's part of a step: what goes in and what comes out.
struct BatchRow {
  RequestHandle request = -1;
  const CurrentForwardPassInfo* info = nullptr;  // must outlive the step
  NamedTensors inputs;                           // what arrived on the node's edges
  InputMetadata metadata;
  int64_t max_tokens = 0;  // > 0: run at most so many tokens of a chunkable prefill now
  uint64_t tag = 0;        // the scheduler's own mark

  RowStatus status = RowStatus::kPending;
  NamedTensors outputs;
  std::vector<std::string_view> stopped_loops;  // names of loops that end with this step
  AdmitOutcome refusal;                         // kDeferred
  ErrorCode error_code = ErrorCode::kInternal;  // kFailed
  std::string error_message;

  // As new, but keeps memory; lets go of all tensors.
  void reset() {
    request = -1;
    info = nullptr;
    inputs.clear();
    metadata.clear();
    max_tokens = 0;
    tag = 0;
    status = RowStatus::kPending;
    outputs.clear();
    stopped_loops.clear();
    refusal = {};
    error_message.clear();
  }

  void fail(ErrorCode code, std::string message) {
    status = RowStatus::kFailed;
    error_code = code;
    error_message = std::move(message);
    outputs.clear();
    stopped_loops.clear();
  }
};

// Requests that run one node of one walk together. Made by the scheduler, run by the executor,
// given back. One owner at a time.
struct StepBatch {
  std::string_view node;  // names live in the compiled model
  std::string_view graph_walk;
  std::vector<BatchRow> rows;

  // Filled by the run.
  std::chrono::steady_clock::time_point begin;
  int64_t num_tokens = 0;       // over all rows that ran
  int num_captured_steps = 0;   // groups that were replayed …
  int num_eager_steps = 0;      // … or ran eagerly
  double seconds = 0.0;         // whole run
  double kernel_seconds = 0.0;  // forwards alone

  // As new, but keeps the rows, which are reset: a batch that is used again allocates nothing.
  void reset() {
    std::vector<BatchRow> kept = std::move(rows);
    for (BatchRow& row : kept) {
      row.reset();
    }
    *this = StepBatch();
    rows = std::move(kept);
  }
};

}  // namespace mstar
