#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/engine/request_state.h"
#include "mstar/resources/names.h"

namespace mstar {

// What a submodule may know about one request during one walk. Written by the conductor between
// walks, read by the worker's threads during one; one object a request and partition.
struct CurrentForwardPassInfo {
  std::string request_id;     // the client's
  RequestHandle handle = -1;  // the engine's
  std::string graph_walk;     // walk being run
  std::string partition_name;
  bool requires_cfg = false;            // both guidance branches are needed
  int64_t fwd_index = 0;                // walks run so far in this partition
  uint64_t random_seed = 0;             // the request's; the same in all walks
  int64_t max_tokens = 0;               // generated tokens allowed
  Json step_metadata = Json::object();  // the request's resolved parameters and what the model adds
  ValueMap values;                      // typed facts the model keeps for its submodules

  // Set when nobody waits for the answer any more. Long forwards (a video decoded chunk by chunk)
  // look at it between chunks. May be null.
  std::shared_ptr<const std::atomic<bool>> cancelled;

  bool is_cancelled() const {
    return cancelled != nullptr && cancelled->load(std::memory_order_relaxed);
  }
};

// One chunk that arrived on a streaming edge.
struct StreamChunkInfo {
  int64_t chunk_index = 0;
  int64_t start_offset = 0;  // items of the stream before this chunk
  bool is_final = false;
};

// What the worker knows about one request's inputs to this step. Per step, unlike
// CurrentForwardPassInfo.
struct InputMetadata {
  std::vector<std::pair<std::string_view, StreamChunkInfo>> stream_chunks;     // by edge
  std::vector<std::pair<std::string_view, int64_t>> dynamic_loop_iter_counts;  // by loop, from 0

  void clear() {
    stream_chunks.clear();
    dynamic_loop_iter_counts.clear();
  }

  const StreamChunkInfo* find_chunk(std::string_view edge) const;

  // Iterations the loop has finished; 0 outside.
  int64_t loop_iter(std::string_view loop) const;
};

}  // namespace mstar
