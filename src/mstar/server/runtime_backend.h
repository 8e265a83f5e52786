#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"
#include "mstar/server/backend.h"

namespace mstar {

struct RuntimeBackendOptions {
  std::string served_name{};  // replaces the model's own name where it is not empty
  // Requests without a seed get one that this and their number decide; nothing: random ones.
  std::optional<uint64_t> seed{};
};

// A model run by this process. Thread-safe; all three outlive it.
class RuntimeBackend final : public Backend {
 public:
  RuntimeBackend(const Model& model,
                 Runtime& runtime,
                 Service& service,
                 RuntimeBackendOptions options);

  const ModelDescription& description() const override { return description_; }

  graph::ModelGraph graph() const override { return model_.get_graph_walk_graphs(); }

  std::vector<int32_t> tokenize(std::string_view text, bool add_special_tokens) const override {
    return model_.tokenize(text, add_special_tokens);
  }

  std::string detokenize(const std::vector<int32_t>& ids) const override {
    return model_.detokenize(ids);
  }

  std::string prompt_text(const std::vector<int32_t>& ids) const override {
    return model_.prompt_text(ids);
  }

  std::shared_ptr<RunningRequest> submit(ModelRequest request,
                                         std::shared_ptr<ChunkSink> sink,
                                         bool report_progress) override;
  BackendStats stats() const override;
  void append_metrics(MetricsText& out) const override;

 private:
  const Model& model_;
  Runtime& runtime_;
  Service& service_;
  const RuntimeBackendOptions options_;
  ModelDescription description_;
  std::atomic<uint64_t> num_submitted_ = 0;
};

}  // namespace mstar
