#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mstar/components/attention.h"
#include "mstar/resources/kv_cache.h"
#include "mstar/resources/step_runner.h"

namespace mstar::golden {

// Resources of one node with the phases of a step around a forward, as the engine drives them.
class ResourceRig {
 public:
  using Specs = std::vector<std::pair<std::string, ResourceSpec>>;

  // Built in the given order: what a resource depends on stands before it.
  ResourceRig(const Specs& specs, int num_requests);
  ~ResourceRig();

  ResourceRig(const ResourceRig&) = delete;
  ResourceRig& operator=(const ResourceRig&) = delete;

  const ResourceMap& resources() const { return map_; }

  ResourceId id(const std::string& key) const { return map_.at(key)->id(); }

  KvCache& kv(const std::string& key) { return dynamic_cast<KvCache&>(*map_.at(key)); }

  LabelTable& labels() { return labels_; }

  // admit, plan, stage, forward, commit. Throws Error(kResourceExhausted) when refused.
  void run(Stream& stream,
           const SubmoduleStep& step,
           const std::function<void(const AttentionContext& context)>& forward);

 private:
  LabelTable labels_;
  NameTable keys_{"resource"};
  std::vector<std::unique_ptr<Resource>> owned_;
  std::vector<Resource*> by_id_;
  ResourceMap map_;
  std::unique_ptr<StepRunner> runner_;
  int num_requests_;
};

// A cache big enough for a golden case: one layer, pages of four tokens.
KVSpec small_kv(int64_t num_kv_heads, int64_t head_dim, DType dtype, int64_t page_size = 4);

}  // namespace mstar::golden
