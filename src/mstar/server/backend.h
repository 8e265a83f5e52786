#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/graph/walk_graph.h"
#include "mstar/runtime/service.h"

namespace mstar {

class MetricsText;

// A submitted request. Thread-safe.
class RunningRequest {
 public:
  virtual ~RunningRequest() = default;
  virtual void cancel() = 0;
  virtual void set_paused(bool paused) = 0;
};

// Where the model's work stands now.
struct BackendStats {
  struct Cache {
    int worker = 0;
    std::string name;
    int64_t num_pages = 0;
    int64_t num_free = 0;         // in nobody's hands
    int64_t num_prefix = 0;       // that the prefix cache knows, in use or not
    int64_t num_prefix_hits = 0;  // tokens taken from it instead of computed
  };

  int64_t num_running = 0;
  int64_t num_waiting = 0;
  std::vector<Cache> caches;
};

// What handlers need of a served model; tests serve a model of their own through it. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const ModelDescription& description() const = 0;
  virtual graph::ModelGraph graph() const = 0;
  virtual std::vector<int32_t> tokenize(std::string_view text, bool add_special_tokens) const = 0;
  virtual std::string detokenize(const std::vector<int32_t>& ids) const = 0;
  virtual std::string prompt_text(const std::vector<int32_t>& ids) const = 0;

  // As Service::submit: never throws, everything that goes wrong comes to the sink.
  virtual std::shared_ptr<RunningRequest> submit(ModelRequest request,
                                                 std::shared_ptr<ChunkSink> sink,
                                                 bool report_progress) = 0;

  virtual BackendStats stats() const = 0;

  // Counters of what runs the model.
  virtual void append_metrics(MetricsText& out) const = 0;
};

}  // namespace mstar
