#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/runtime/worker/scheduler.h"

namespace mstar {

// One request's walk in one partition, as far as this worker runs it. Guarded by the scheduler's
// lock; `info` is read by the executor while a step holds the request.
struct Scheduler::WalkRun {
  WalkRun(int index, graph::PayloadOwner& payloads) : partition(index), state(payloads) {}

  int partition;
  graph::WalkState state;
  const graph::CompiledWalk* walk = nullptr;
  uint16_t walk_index = 0;
  std::shared_ptr<CurrentForwardPassInfo> info;
  bool active = false;
  bool report_progress = false;
  bool consumed_final = false;
  int blocked = 0;                    // full streams that this partition feeds
  uint64_t held = 0;                  // nodes a resource refused …
  uint64_t held_epoch = 0;            // … until the scheduler's epoch is past this
  std::vector<uint64_t> ready_order;  // [node]; 0: not seen ready yet
  std::vector<std::pair<graph::LoopId, int64_t>> limits;
  std::vector<std::pair<std::string_view, StreamChunkInfo>> chunks;  // last given, by edge
  std::vector<RemoteMessage> early;  // messages for an iteration not reached yet
};

// Everything this worker knows about one request.
struct Scheduler::ActiveRequest {
  ActiveRequest(RequestKey request, const graph::CompiledModel& model, graph::PayloadOwner& owner)
      : key(request), streams(model.topology.connections.size()) {
    for (size_t partition = 0; partition < model.topology.partitions.size(); ++partition) {
      runs.emplace_back(static_cast<int>(partition), owner);
    }
  }

  // The consumer's side of a connection; the buffer is null on other workers.
  struct Stream {
    std::unique_ptr<graph::StreamBuffer> buffer;
    std::vector<TensorList> overflow;  // arrived while the buffer was full; the producer is held
    bool producer_blocked = false;
    bool close_wanted = false;
  };

  RequestKey key;
  RequestHandle handle = -1;  // of this worker's engine, once opened
  bool removing = false;
  bool remove_sent = false;
  bool paused = false;
  int in_flight = 0;  // rows in the running step
  std::string refusal;
  std::deque<WalkRun> runs;     // by partition; they do not move
  std::vector<Stream> streams;  // by connection
  std::vector<StartWalk> waiting_starts;
};

}  // namespace mstar
