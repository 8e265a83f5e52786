#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mstar/resources/capture_key.h"
#include "mstar/resources/names.h"
#include "mstar/tensor/tensor.h"

namespace mstar {

// What one step of one submodule asks of the engine's resources, as plain data: it can be printed,
// compared and tested without running anything. Filled by declare_step on the planning thread,
// then read only. clear() keeps memory, so that a reused step allocates nothing.

// Takes part in a step: `span` tokens are appended to (or, with commit off, written behind) the
// stream (request, label). Span 0 reads without growing. The order of a step's segments is the
// order of all its packed per-token arrays.
struct Segment {
  RequestHandle request = -1;
  LabelId label = kMainLabel;
  int32_t span = 0;  // tokens; for an attention step of its own: query rows

  friend bool operator==(const Segment&, const Segment&) = default;
};

// Several streams packed label-major into one plan: (main, uncond) -> _cfg_batched.
struct CombinedLabels {
  static constexpr int kMaxSources = 8;

  LabelId plan_label = -1;
  int32_t num_sources = 0;
  std::array<LabelId, kMaxSources> sources{};

  std::span<const LabelId> labels() const {
    return {sources.data(), static_cast<size_t>(num_sources)};
  }
};

// `to` becomes a copy of `from` as it stands (pages are shared until somebody writes on them).
struct Fork {
  RequestHandle request = -1;
  LabelId from = kMainLabel;
  LabelId to = -1;

  friend bool operator==(const Fork&, const Fork&) = default;
};

// What a stream keeps. At commit the oldest unprotected tokens beyond the budget go, in whole
// pages rounded down; the first `protected_prefix` tokens, the page on which they end and the
// partial tail stay.
struct RetentionPolicy {
  int64_t context_budget = 0;    // tokens
  int64_t protected_prefix = 0;  // tokens

  friend bool operator==(const RetentionPolicy&, const RetentionPolicy&) = default;
};

struct LabelRetention {
  LabelId label = kMainLabel;
  RetentionPolicy policy;
};

// Common part: the resource asked and its segments (empty: the submodule step's own).
struct ResourceStep {
  ResourceId resource = -1;
  std::vector<Segment> segments;

  void clear() { segments.clear(); }
};

struct KVStep : ResourceStep {
  bool commit = true;                      // false: scratch growth, written and read, not kept
  bool returns_scratch = false;            // pages behind the stored tokens go back at commit
  std::vector<CombinedLabels> combined;    // label-major packs
  std::vector<Fork> pre_forks;             // before the step's plan
  std::vector<Fork> post_forks;            // after its commit
  std::vector<LabelRetention> retentions;  // from this commit on

  void clear();
};

struct AttentionStep : ResourceStep {
  bool causal = true;
};

struct PositionStep : ResourceStep {
  // Explicit ids, per plan label: [tokens] or [3, tokens] i32, i64 or f32, host memory. Empty:
  // counted on from the streams' positions.
  std::vector<std::pair<LabelId, Tensor>> pos_ids;
  std::vector<int64_t> advance;  // one per segment; empty: by the span

  void clear();
};

// Token ids that count as seen before the first draw: the prompt.
struct TrackedTokens {
  RequestHandle request = -1;
  Tensor ids;  // [n] i32 or i64, host memory
};

struct SamplerStep : ResourceStep {
  bool apply_penalty = true;
  int32_t sampler = 0;    // which of the resource's named samplers
  int32_t num_draws = 1;  // draws of every row in this step (depth loops draw several times)
  std::vector<TrackedTokens> prefill_tracked_tokens;

  void clear();
};

// A resource that only wants to know that it takes part (request state, fixed slots).
struct PlainStep : ResourceStep {};

// A list whose clear() keeps its elements' memory.
template <typename Step>
class StepList {
 public:
  Step& add(ResourceId resource) {
    if (size_ == items_.size()) {
      items_.emplace_back();
    }
    Step& step = items_[size_++];
    step.clear();
    step.resource = resource;
    return step;
  }

  // First entry of `resource`, or null.
  const Step* find(ResourceId resource) const {
    for (const Step& step : *this) {
      if (step.resource == resource) {
        return &step;
      }
    }
    return nullptr;
  }

  void clear() { size_ = 0; }

  size_t size() const { return size_; }

  bool empty() const { return size_ == 0; }

  const Step* begin() const { return items_.data(); }

  const Step* end() const { return items_.data() + size_; }

 private:
  std::vector<Step> items_;
  size_t size_ = 0;
};

// The whole declaration. A resource that has no entry takes no part.
//   step.add_segment(request, kMainLabel, n);
//   step.kv.add(kv_id);
//   step.attention.add(attn_id).causal = true;
struct SubmoduleStep {
  std::vector<Segment> segments;
  StepList<KVStep> kv;
  StepList<AttentionStep> attention;
  StepList<PositionStep> position;
  StepList<SamplerStep> sampler;
  StepList<PlainStep> plain;
  CaptureKey capture_key;  // must equal the lease's

  void add_segment(RequestHandle request, LabelId label, int32_t span) {
    segments.push_back({request, label, span});
  }

  // The segments of one resource's entry: its own, else the step's.
  const std::vector<Segment>& segments_of(const ResourceStep& step) const {
    return step.segments.empty() ? segments : step.segments;
  }

  // Whether `resource` takes part.
  bool uses(ResourceId resource) const;

  // Tokens over all segments.
  int64_t num_tokens() const;

  void clear();
};

// Shared by all resources in one step. Made by the engine, which keeps it alive and unmoved until
// the step's forward has run. `slot` selects the buffers that hold the step's plans: steps in
// flight at the same time have different slots, and a leased step has its lease's.
struct StepContext {
  std::vector<RequestHandle> request_ids;  // rows of the step; under a lease padded to its bs
  int32_t num_real = 0;                    // of request_ids; the rest is padding
  WalkId graph_walk = -1;
  int32_t slot = 0;                  // < ResourceBuildInfo::num_slots
  std::optional<SlotLease> lease{};  // nothing: an eager step
  bool capture = false;              // plans for the recording run of a capture
  bool is_preplan = false;           // planned while an earlier step still runs

  bool leased() const { return lease.has_value(); }
};

enum class AdmitReason : uint8_t {
  kNone,
  kAllocationFailed,   // too few pages: try again when others have gone
  kRequestOffloading,  // state is on the host or moving: reload first
  kAdmitWait,          // the gate holds the request back
  kAdmitWaitBehind,    // an earlier request is first
  kRuntimeError,       // can never succeed: fail the request
};

const char* to_string(AdmitReason reason);

// Answer of an admission: scarcity is a value, not an error.
struct AdmitOutcome {
  bool ok = true;     // false: refused
  bool ready = true;  // false: work that it waits for is under way
  AdmitReason reason = AdmitReason::kNone;
  ResourceId resource = -1;  // who refused
  RequestHandle request = -1;
  LabelId label = -1;
  int64_t pages_short = 0;
  std::string message;  // for kRuntimeError: "[where] found, expected, what to do"

  explicit operator bool() const { return ok && ready; }

  bool is_terminal() const { return reason == AdmitReason::kRuntimeError; }
};

// One stand-alone stream or one combination, in packing order.
struct PlanGroup {
  LabelId plan_label = -1;
  int32_t first = 0;  // range of the reordered segments
  int32_t count = 0;
};

// Segments reordered into plan groups: combined labels first (label-major: all segments of the
// first source, then of the second, …), then stand-alone labels in the order in which the batch
// names them. `order[i]` is the index in `segments` of packed segment i. Outputs are overwritten.
void group_by_plan_label(std::span<const Segment> segments,
                         std::span<const CombinedLabels> combined,
                         std::vector<PlanGroup>& groups,
                         std::vector<int32_t>& order);

}  // namespace mstar
