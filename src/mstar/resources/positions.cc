#include "mstar/resources/positions.h"

#include <algorithm>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/kernels/ops/rope.h"

namespace mstar {

Positions::Positions(ResourceId id,
                     const std::string& key,
                     const PositionSpec& spec,
                     const ResourceBuildInfo& info,
                     KvCache* kv)
    : PositionResource(id, key), spec_(spec), kv_(kv), slots_(static_cast<size_t>(info.num_slots)) {
  if (spec_.use_rope) {
    inv_freq_ = rope_inv_freq(spec_.rope);
  }
}

std::vector<ResourceId> Positions::depends_on() const {
  return kv_ == nullptr ? std::vector<ResourceId>() : std::vector<ResourceId>{kv_->id()};
}

void Positions::ingest_request(RequestHandle request, const RequestResourceConfig& config) {
  while (requests_.size() <= static_cast<size_t>(request)) {
    requests_.emplace_back();
  }
  Request& added = requests_[static_cast<size_t>(request)];
  MSTAR_CHECK(!added.open, "request ", request, " is open already");
  const auto* given = std::get_if<PositionRequestConfig>(&config);
  added.open = true;
  added.start = given == nullptr ? 0 : given->start;
  added.counters.clear();
}

void Positions::remove_request(RequestHandle request) {
  if (request >= 0 && static_cast<size_t>(request) < requests_.size()) {
    requests_[static_cast<size_t>(request)] = Request();
  }
}

Positions::Request& Positions::request_of(RequestHandle request) {
  MSTAR_CHECK(request >= 0 && static_cast<size_t>(request) < requests_.size() &&
                  requests_[static_cast<size_t>(request)].open,
              "resource '",
              key(),
              "': request ",
              request,
              " is not open");
  return requests_[static_cast<size_t>(request)];
}

Positions::Counter& Positions::counter(RequestHandle request, LabelId label) {
  Request& of = request_of(request);
  for (Counter& known : of.counters) {
    if (known.label == label) {
      return known;
    }
  }
  return of.counters.emplace_back(Counter{label, of.start, 0});
}

int64_t Positions::position(RequestHandle request, LabelId label) const {
  return const_cast<Positions*>(this)->counter(request, label).position;
}

void Positions::set_position(RequestHandle request, LabelId label, int64_t position) {
  counter(request, label) = {label, position, 0};
}

void Positions::skip_prefix(RequestHandle request, LabelId label, int64_t num_tokens) {
  Counter& of = counter(request, label);
  of.position += spec_.scheme == PositionScheme::kSequential ? num_tokens : 0;
}

Positions::Slot& Positions::slot(const StepContext& context) {
  MSTAR_CHECK(context.slot >= 0 && static_cast<size_t>(context.slot) < slots_.size(),
              "slot ",
              context.slot,
              " of ",
              slots_.size());
  return slots_[static_cast<size_t>(context.slot)];
}

void Positions::reserve(Group& group, int64_t capacity) const {
  if (capacity <= group.capacity) {
    return;
  }
  group.capacity = capacity;
  group.num_used = 0;
  group.ids =
      Tensor::zeros({spec_.num_axes, capacity}, spec_.float_ids ? DType::kF32 : DType::kI32);
  if (spec_.use_rope) {
    group.cos = Tensor::zeros({capacity, inv_freq_.dim(0)}, DType::kF32);
    group.sin = Tensor::zeros({capacity, inv_freq_.dim(0)}, DType::kF32);
  }
}

Positions::Group& Positions::group_for(Slot& to, LabelId label, bool leased) {
  if (!leased) {
    while (to.eager.size() <= to.groups.size()) {
      to.eager.emplace_back();
    }
    to.eager[to.groups.size()].plan_label = label;
    return to.eager[to.groups.size()];
  }
  const auto known = std::find_if(to.leased.begin(), to.leased.end(), [label](const Group& group) {
    return group.plan_label == label;
  });
  MSTAR_CHECK(
      known != to.leased.end(), "resource '", key(), "': no static buffers for plan label ", label);
  return *known;
}

void Positions::plan(const SubmoduleStep& step, const StepContext& context) {
  const PositionStep* own = step.position.find(id());
  if (own == nullptr) {
    return;
  }
  const KVStep* kv = kv_ == nullptr ? nullptr : step.kv.find(kv_->id());
  if (kv != nullptr) {
    for (const Fork& fork : kv->pre_forks) {
      set_position(fork.request, fork.to, counter(fork.request, fork.from).position);
    }
  }
  Slot& to = slot(context);
  to.groups.clear();
  const std::vector<Segment>& segments = step.segments_of(*own);
  group_by_plan_label(segments,
                      kv == nullptr ? std::span<const CombinedLabels>() : kv->combined,
                      to.plan_groups,
                      to.order);
  for (const PlanGroup& packed : to.plan_groups) {
    add_group(to, packed, segments, *own, context.lease ? context.lease->bucket.num_tokens : -1);
  }
}

void Positions::add_group(Slot& to,
                          const PlanGroup& packed,
                          const std::vector<Segment>& segments,
                          const PositionStep& own,
                          int64_t bucket_tokens) {
  const bool leased = bucket_tokens >= 0;
  int64_t num_tokens = 0;
  for (int32_t index = packed.first; index < packed.first + packed.count; ++index) {
    num_tokens += segments[static_cast<size_t>(to.order[static_cast<size_t>(index)])].span;
  }
  Group& group = group_for(to, packed.plan_label, leased);
  if (num_tokens > group.capacity || !group.ids.defined()) {  // undefined: no step had tokens yet
    MSTAR_CHECK(
        !group.fixed, "a leased step has ", num_tokens, " tokens, its buffers ", group.capacity);
    reserve(group, std::max<int64_t>(num_tokens + num_tokens / 2, 64));
  }
  group.num_tokens = num_tokens;
  const auto given = std::find_if(own.pos_ids.begin(), own.pos_ids.end(), [&](const auto& ids) {
    return ids.first == packed.plan_label;
  });
  if (given != own.pos_ids.end()) {
    write_explicit(group, given->second);
  } else if (spec_.float_ids) {
    write_counted<float>(group, packed, to.order, segments);
  } else {
    write_counted<int32_t>(group, packed, to.order, segments);
  }
  // Rows behind the real ones read position 0, never what an earlier step left there.
  const int64_t axis_bytes = group.capacity * 4;
  for (int64_t axis = 0; axis < spec_.num_axes && group.num_used > num_tokens; ++axis) {
    std::memset(group.ids.bytes() + axis * axis_bytes + num_tokens * 4,
                0,
                static_cast<size_t>(group.num_used - num_tokens) * 4);
  }
  group.num_used = num_tokens;
  group.ids_view = group.ids.slice(1, 0, std::clamp(bucket_tokens, num_tokens, group.capacity));
  if (spec_.num_axes == 1) {
    group.ids_view = group.ids_view.select(0, 0);
  }
  to.groups.push_back(&group);
}

void Positions::write_explicit(Group& group, const Tensor& from) const {
  const int64_t num_tokens = group.num_tokens;
  const bool one_row = from.num_dims() == 1;
  MSTAR_CHECK((one_row || (from.num_dims() == 2 && from.dim(0) == spec_.num_axes)) &&
                  from.dim(-1) == num_tokens,
              "resource '",
              key(),
              "': pos_ids ",
              from.to_string(),
              " for ",
              num_tokens,
              " tokens and ",
              spec_.num_axes,
              " axes");
  MSTAR_CHECK(from.dtype() == DType::kI32 || from.dtype() == DType::kI64 ||
                  (from.dtype() == DType::kF32 && spec_.float_ids),
              "resource '",
              key(),
              "': pos_ids ",
              from.to_string());
  const auto value = [&](int64_t axis, int64_t token) -> double {
    const int64_t at = (one_row ? 0 : axis * from.stride(0)) + token * from.stride(-1);
    switch (from.dtype()) {
      case DType::kI32: return from.data<int32_t>()[at];
      case DType::kI64: return static_cast<double>(from.data<int64_t>()[at]);
      default: return from.data<float>()[at];
    }
  };
  for (int64_t axis = 0; axis < spec_.num_axes; ++axis) {
    for (int64_t token = 0; token < num_tokens; ++token) {
      const int64_t to = axis * group.capacity + token;
      if (spec_.float_ids) {
        group.ids.data<float>()[to] = static_cast<float>(value(axis, token));
      } else {
        group.ids.data<int32_t>()[to] = static_cast<int32_t>(value(axis, token));
      }
    }
  }
}

template <typename T>
void Positions::write_counted(Group& group,
                              const PlanGroup& packed,
                              const std::vector<int32_t>& order,
                              const std::vector<Segment>& segments) {
  T* ids = group.ids.data<T>();
  int64_t token = 0;
  for (int32_t index = packed.first; index < packed.first + packed.count; ++index) {
    const Segment& segment = segments[static_cast<size_t>(order[static_cast<size_t>(index)])];
    const int64_t position = counter(segment.request, segment.label).position;
    for (int32_t offset = 0; offset < segment.span; ++offset) {
      const bool counts = spec_.scheme == PositionScheme::kSequential;
      ids[token++] = static_cast<T>(position + (counts ? offset : 0));
    }
  }
  for (int64_t axis = 1; axis < spec_.num_axes; ++axis) {
    std::copy_n(ids, token, ids + axis * group.capacity);
  }
}

void Positions::stage(Stream& stream, const StepContext& context) {
  if (!spec_.use_rope) {
    return;
  }
  for (Group* group : slot(context).groups) {
    const int64_t num_tokens = group->num_tokens;
    if (num_tokens > 0) {
      Tensor cos = group->cos.slice(0, 0, num_tokens);
      Tensor sin = group->sin.slice(0, 0, num_tokens);
      ops::rope_table(stream,
                      group->ids_view.slice(spec_.num_axes == 1 ? 0 : 1, 0, num_tokens),
                      inv_freq_,
                      spec_.rope,
                      cos,
                      sin);
    }
  }
}

// Steps that keep nothing of their rows keep their positions too, unless told otherwise.
int64_t Positions::advance_of(const SubmoduleStep& step,
                              const PositionStep& own,
                              size_t segment) const {
  if (!own.advance.empty()) {
    return own.advance[segment];
  }
  const KVStep* kv = kv_ == nullptr ? nullptr : step.kv.find(kv_->id());
  const int32_t span = step.segments_of(own)[segment].span;
  if ((kv != nullptr && !kv->commit) || span == 0) {
    return 0;
  }
  return spec_.scheme == PositionScheme::kSequential ? span : spec_.block_step;
}

void Positions::commit(const SubmoduleStep& step, const StepContext& /*context*/) {
  const PositionStep* own = step.position.find(id());
  if (own == nullptr) {
    return;
  }
  const std::vector<Segment>& segments = step.segments_of(*own);
  MSTAR_CHECK(own->advance.empty() || own->advance.size() == segments.size(),
              "resource '",
              key(),
              "': ",
              own->advance.size(),
              " advances for ",
              segments.size(),
              " segments");
  for (size_t index = 0; index < segments.size(); ++index) {
    Counter& of = counter(segments[index].request, segments[index].label);
    of.undo = advance_of(step, *own, index);
    of.position += of.undo;
  }
  const KVStep* kv = kv_ == nullptr ? nullptr : step.kv.find(kv_->id());
  if (kv != nullptr) {
    for (const Fork& fork : kv->post_forks) {
      set_position(fork.request, fork.to, counter(fork.request, fork.from).position);
    }
  }
}

void Positions::discard(const SubmoduleStep& step,
                        const StepContext& /*context*/,
                        RequestHandle request,
                        bool /*poisoned*/) {
  const PositionStep* own = step.position.find(id());
  if (own == nullptr) {
    return;
  }
  for (const Segment& segment : step.segments_of(*own)) {
    if (segment.request == request) {
      Counter& of = counter(request, segment.label);
      of.position -= of.undo;
      of.undo = 0;
    }
  }
}

void Positions::publish(RequestHandle request, PublishedInfo& info) const {
  if (request < 0 || static_cast<size_t>(request) >= requests_.size()) {
    return;
  }
  for (const Counter& of : requests_[static_cast<size_t>(request)].counters) {
    info.stream(of.label).position = of.position;
  }
}

void Positions::reset_request(RequestHandle request, bool /*free*/) {
  Request& of = request_of(request);
  for (Counter& known : of.counters) {
    known = {known.label, of.start, 0};
  }
}

void Positions::build_capture_buffers(const CaptureLimits& limits) {
  for (Slot& to : slots_) {
    for (const LabelId label : limits.labels) {
      auto known = std::find_if(to.leased.begin(), to.leased.end(), [label](const Group& group) {
        return group.plan_label == label;
      });
      if (known == to.leased.end()) {
        known = to.leased.emplace(to.leased.end());
        known->plan_label = label;
        known->fixed = true;
      }
      reserve(*known, limits.max_num_tokens);
    }
  }
}

const Positions::Group& Positions::find_group(const AttentionContext& context) const {
  const Slot& from = const_cast<Positions*>(this)->slot(*context.step);
  for (const Group* group : from.groups) {
    if (group->plan_label == context.label) {
      return *group;
    }
  }
  MSTAR_CHECK(false, "resource '", key(), "': the step plans nothing for label ", context.label);
  __builtin_unreachable();
}

void Positions::apply_qk(Stream& stream,
                         const AttentionContext& context,
                         Tensor& q,
                         Tensor& k) const {
  if (!spec_.use_rope) {
    return;
  }
  const Group& group = find_group(context);
  const Tensor cos = group.cos.slice(0, 0, q.dim(0));
  const Tensor sin = group.sin.slice(0, 0, q.dim(0));
  ops::apply_rope(stream, cos, sin, spec_.rope, spec_.round_table, q);
  if (k.defined()) {
    ops::apply_rope(stream, cos, sin, spec_.rope, spec_.round_table, k);
  }
}

const Tensor& Positions::pos_ids(const AttentionContext& context) const {
  return find_group(context).ids_view;
}

}  // namespace mstar
