#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/resources/attention_plan.h"

namespace mstar {

// Attention of denoise steps: [frozen prefix | fresh rows]. The prefix is gathered out of its pages
// once per (request, label, layer) and content, and kept until the stream changes; fresh rows are
// never written. For eager steps that do not commit. Threads as in Resource.
class DenseAttention : public PlannedAttention {
 public:
  DenseAttention(ResourceId id,
                 const std::string& key,
                 const AttentionSpec& spec,
                 const ResourceBuildInfo& info,
                 KvCache* kv)
      : PlannedAttention(id, key, spec, info, kv), held_(static_cast<size_t>(info.num_slots)) {}

  void remove_request(RequestHandle request) override;
  void plan(const SubmoduleStep& step, const StepContext& context) override;
  void finish(const StepContext& context) override;
  void attend(Stream& stream,
              const AttentionContext& context,
              const Tensor& q,
              const Tensor& k,
              const Tensor& v,
              Tensor& out) override;

  // Streams whose prefix is kept: for metrics and leak checks.
  int64_t num_prefixes() const { return static_cast<int64_t>(prefixes_.size()); }

 private:
  // Gathered keys and values of one stream. Made by the step loop, filled layer by layer by the
  // executor, freed by whoever lets go of it last.
  struct Prefix {
    struct Layer {
      Tensor k;  // [prefix_len, num_kv_heads, head_dim]
      Tensor v;
    };

    RequestHandle request = -1;
    LabelId label = -1;
    uint64_t generation = 0;
    std::vector<Layer> layers;
  };

  // Prefixes of the step in packing order of all groups: keeps them alive while it runs.
  std::vector<std::shared_ptr<Prefix>>& held(const StepContext& context);

  std::vector<std::shared_ptr<Prefix>> prefixes_;
  std::vector<std::vector<std::shared_ptr<Prefix>>> held_;  // by slot
};

}  // namespace mstar
