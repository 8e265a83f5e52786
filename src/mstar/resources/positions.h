#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "mstar/resources/attention.h"
#include "mstar/resources/kv_cache.h"

namespace mstar {

// Next position of every stream, the positions of a step's tokens, and the rotation tables that
// come from them: made once per step and plan label, read by all layers. Streams are forked where
// the KV resource forks them. Threads as in Resource.
class Positions : public PositionResource {
 public:
  // `kv` may be null: then the step's segments are grouped by label.
  Positions(ResourceId id,
            const std::string& key,
            const PositionSpec& spec,
            const ResourceBuildInfo& info,
            KvCache* kv);

  std::vector<ResourceId> depends_on() const override;
  void ingest_request(RequestHandle request, const RequestResourceConfig& config) override;
  void remove_request(RequestHandle request) override;
  void plan(const SubmoduleStep& step, const StepContext& context) override;
  void stage(Stream& stream, const StepContext& context) override;
  void commit(const SubmoduleStep& step, const StepContext& context) override;
  void discard(const SubmoduleStep& step,
               const StepContext& context,
               RequestHandle request,
               bool poisoned) override;
  void publish(RequestHandle request, PublishedInfo& info) const override;
  void reset_request(RequestHandle request, bool free) override;
  void build_capture_buffers(const CaptureLimits& limits) override;

  // Positions given from outside do not follow from token counts.
  bool prefix_skip_safe() const override { return spec_.num_axes == 1; }

  void skip_prefix(RequestHandle request, LabelId label, int64_t num_tokens) override;

  void apply_qk(Stream& stream,
                const AttentionContext& context,
                Tensor& q,
                Tensor& k) const override;
  const Tensor& pos_ids(const AttentionContext& context) const override;

  // Position of the stream's next token.
  int64_t position(RequestHandle request, LabelId label) const;
  void set_position(RequestHandle request, LabelId label, int64_t position);

 private:
  struct Counter {
    LabelId label = kMainLabel;
    int64_t position = 0;
    int64_t undo = 0;  // what the last commit added
  };

  struct Request {
    bool open = false;
    int64_t start = 0;
    std::vector<Counter> counters;
  };

  struct Group {
    LabelId plan_label = -1;
    int64_t num_tokens = 0;
    int64_t capacity = 0;
    bool fixed = false;
    int64_t num_used = 0;
    Tensor ids;       // [axes, capacity] i32 or f32
    Tensor ids_view;  // [tokens] or [3, tokens] of it
    Tensor cos, sin;  // [capacity, rotary_dim / 2] f32
  };

  struct Slot {
    std::deque<Group> leased;
    std::deque<Group> eager;
    std::vector<Group*> groups;  // of this step
    std::vector<PlanGroup> plan_groups;
    std::vector<int32_t> order;
  };

  Slot& slot(const StepContext& context);
  Request& request_of(RequestHandle request);
  Counter& counter(RequestHandle request, LabelId label);
  int64_t advance_of(const SubmoduleStep& step, const PositionStep& own, size_t segment) const;
  Group& group_for(Slot& to, LabelId label, bool leased);
  void reserve(Group& group, int64_t capacity) const;
  void add_group(Slot& to,
                 const PlanGroup& packed,
                 const std::vector<Segment>& segments,
                 const PositionStep& own,
                 int64_t bucket_tokens);  // -1: an eager step
  void write_explicit(Group& group, const Tensor& from) const;
  template <typename T>
  void write_counted(Group& group,
                     const PlanGroup& packed,
                     const std::vector<int32_t>& order,
                     const std::vector<Segment>& segments);
  const Group& find_group(const AttentionContext& context) const;

  PositionSpec spec_;
  KvCache* kv_;
  Tensor inv_freq_;  // [rotary_dim / 2] f32
  std::deque<Request> requests_;
  std::vector<Slot> slots_;
};

}  // namespace mstar
