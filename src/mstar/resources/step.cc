#include "mstar/resources/step.h"

#include <algorithm>
#include <numeric>

#include "mstar/base/check.h"
#include "mstar/base/str_cat.h"

namespace mstar {

std::string to_string(const CaptureKey& key) {
  if (key.empty()) {
    return "none";
  }
  std::string text = "(";
  for (int index = 0; index < key.size(); ++index) {
    text += str_cat(index == 0 ? "" : ", ", key[index]);
  }
  return text + ")";
}

std::string to_string(const BucketKey& key) {
  return str_cat("walk ",
                 key.graph_walk,
                 ", bs ",
                 key.bs,
                 ", tokens ",
                 key.num_tokens,
                 ", key ",
                 to_string(key.key));
}

const char* to_string(AdmitReason reason) {
  switch (reason) {
    case AdmitReason::kNone: return "none";
    case AdmitReason::kAllocationFailed: return "allocation failed";
    case AdmitReason::kRequestOffloading: return "request offloading";
    case AdmitReason::kAdmitWait: return "waits for admission";
    case AdmitReason::kAdmitWaitBehind: return "waits behind an earlier request";
    case AdmitReason::kRuntimeError: return "runtime error";
  }
  return "unknown";
}

void KVStep::clear() {
  ResourceStep::clear();
  commit = true;
  returns_scratch = false;
  combined.clear();
  pre_forks.clear();
  post_forks.clear();
  retentions.clear();
}

void PositionStep::clear() {
  ResourceStep::clear();
  pos_ids.clear();
  advance.clear();
}

void SamplerStep::clear() {
  ResourceStep::clear();
  apply_penalty = true;
  sampler = 0;
  num_draws = 1;
  prefill_tracked_tokens.clear();
}

bool SubmoduleStep::uses(ResourceId resource) const {
  return kv.find(resource) != nullptr || attention.find(resource) != nullptr ||
         position.find(resource) != nullptr || sampler.find(resource) != nullptr ||
         plain.find(resource) != nullptr;
}

int64_t SubmoduleStep::num_tokens() const {
  return std::accumulate(
      segments.begin(), segments.end(), int64_t{0}, [](int64_t sum, const Segment& segment) {
        return sum + segment.span;
      });
}

void SubmoduleStep::clear() {
  segments.clear();
  kv.clear();
  attention.clear();
  position.clear();
  sampler.clear();
  plain.clear();
  capture_key = CaptureKey();
}

namespace {

void append_label(std::span<const Segment> segments, LabelId label, std::vector<int32_t>& order) {
  for (size_t index = 0; index < segments.size(); ++index) {
    if (segments[index].label == label) {
      order.push_back(static_cast<int32_t>(index));
    }
  }
}

bool is_combined(std::span<const CombinedLabels> combined, LabelId label) {
  return std::any_of(combined.begin(), combined.end(), [label](const CombinedLabels& pack) {
    const auto labels = pack.labels();
    return std::find(labels.begin(), labels.end(), label) != labels.end();
  });
}

}  // namespace

void group_by_plan_label(std::span<const Segment> segments,
                         std::span<const CombinedLabels> combined,
                         std::vector<PlanGroup>& groups,
                         std::vector<int32_t>& order) {
  groups.clear();
  order.clear();
  for (const CombinedLabels& pack : combined) {
    PlanGroup group{pack.plan_label, static_cast<int32_t>(order.size()), 0};
    for (const LabelId label : pack.labels()) {
      append_label(segments, label, order);
    }
    group.count = static_cast<int32_t>(order.size()) - group.first;
    groups.push_back(group);
  }
  for (const Segment& segment : segments) {
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const PlanGroup& group) {
      return group.plan_label == segment.label;
    });
    if (known != groups.end() || is_combined(combined, segment.label)) {
      continue;
    }
    PlanGroup group{segment.label, static_cast<int32_t>(order.size()), 0};
    append_label(segments, segment.label, order);
    group.count = static_cast<int32_t>(order.size()) - group.first;
    groups.push_back(group);
  }
  MSTAR_CHECK(order.size() == segments.size(),
              "a label is in two combinations, or is a plan label",
              " too: packed ",
              order.size(),
              " of ",
              segments.size(),
              " segments");
}

}  // namespace mstar
