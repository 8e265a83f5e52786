#include "mstar/resources/attention_plan.h"

#include <algorithm>

#include "mstar/base/check.h"

namespace mstar {

PlannedAttention::PlannedAttention(ResourceId id,
                                   const std::string& key,
                                   const AttentionSpec& spec,
                                   const ResourceBuildInfo& info,
                                   KvCache* kv)
    : AttentionResource(id, key),
      kv_(kv),
      spec_(spec),
      slots_(static_cast<size_t>(info.num_slots)) {}

std::vector<ResourceId> PlannedAttention::depends_on() const {
  return kv_ == nullptr ? std::vector<ResourceId>() : std::vector<ResourceId>{kv_->id()};
}

PlannedAttention::Slot& PlannedAttention::slot(const StepContext& context) {
  MSTAR_CHECK(context.slot >= 0 && static_cast<size_t>(context.slot) < slots_.size(),
              "slot ",
              context.slot,
              " of ",
              slots_.size());
  return slots_[static_cast<size_t>(context.slot)];
}

const PlannedAttention::Slot& PlannedAttention::slot(const StepContext& context) const {
  return const_cast<PlannedAttention*>(this)->slot(context);
}

PlannedAttention::Arrays& PlannedAttention::arrays_for(Slot& to, LabelId label, bool leased) {
  if (!leased) {
    while (to.eager.size() <= to.groups.size()) {
      to.eager.emplace_back();
    }
    return to.eager[to.groups.size()];
  }
  const auto known = std::find_if(to.leased.begin(), to.leased.end(), [label](const Arrays& a) {
    return a.plan_label == label;
  });
  MSTAR_CHECK(
      known != to.leased.end(), "resource '", key(), "': no static buffers for plan label ", label);
  return *known;
}

template <typename RowsOf>
void PlannedAttention::add_group(Slot& to,
                                 LabelId label,
                                 bool leased,
                                 int64_t num_seqs,
                                 RowsOf rows_of) {
  Arrays& arrays = arrays_for(to, label, leased);
  int32_t* indptr = arrays.qo_indptr.prepare(num_seqs + 1);
  int32_t* last = arrays.last_rows.prepare(num_seqs);
  indptr[0] = 0;
  for (int64_t row = 0; row < num_seqs; ++row) {
    indptr[row + 1] = indptr[row] + rows_of(row);
    last[row] = std::max(indptr[row + 1] - 1, 0);
  }
  const int32_t num_rows = indptr[num_seqs];
  arrays.qo_indptr.fill_rest(num_seqs + 1, num_rows);
  to.groups.push_back(
      {label, num_rows, arrays.qo_indptr.view(num_seqs + 1), arrays.last_rows.view(num_seqs)});
}

void PlannedAttention::plan(const SubmoduleStep& step, const StepContext& context) {
  const AttentionStep* attention = step.attention.find(id());
  if (attention == nullptr) {
    return;
  }
  Slot& to = slot(context);
  to.causal = attention->causal;
  to.groups.clear();
  const std::vector<Segment>& segments = step.segments_of(*attention);
  if (kv_ == nullptr) {
    group_by_plan_label(segments, {}, to.plan_groups, to.order);
    for (const PlanGroup& group : to.plan_groups) {
      add_group(to, group.plan_label, context.leased(), group.count, [&](int64_t row) {
        const int32_t index = to.order[static_cast<size_t>(group.first + row)];
        return segments[static_cast<size_t>(index)].span;
      });
    }
    return;
  }
  const KVStep* kv = step.kv.find(kv_->id());
  MSTAR_CHECK(kv != nullptr, "resource '", key(), "' takes part, its cache does not");
  MSTAR_CHECK(step.segments_of(*kv).size() == segments.size(),
              "resource '",
              key(),
              "': ",
              segments.size(),
              " segments for ",
              step.segments_of(*kv).size(),
              " of the cache");
  for (const KvGroupPlan& group : kv_->groups(context)) {
    add_group(to, group.plan_label, context.leased(), group.num_seqs(), [&](int64_t row) {
      const SequenceView& view = group.sequences[static_cast<size_t>(row)];
      const Segment& segment = segments[static_cast<size_t>(view.segment)];
      MSTAR_DCHECK(segment.request == view.request, "segments pair by position");
      return segment.span;
    });
  }
}

void PlannedAttention::build_capture_buffers(const CaptureLimits& limits) {
  for (Slot& to : slots_) {
    for (const LabelId label : limits.labels) {
      auto known = std::find_if(to.leased.begin(), to.leased.end(), [label](const Arrays& a) {
        return a.plan_label == label;
      });
      if (known == to.leased.end()) {
        known = to.leased.emplace(to.leased.end());
        known->plan_label = label;
      }
      const int64_t max_rows = limits.max_bs * CombinedLabels::kMaxSources;
      known->qo_indptr.reserve(max_rows + 1, 0, true);
      known->last_rows.reserve(max_rows, 0, true);
    }
  }
}

const AttentionGroup& PlannedAttention::group(const AttentionContext& context) const {
  const std::vector<AttentionGroup>& groups = slot(*context.step).groups;
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const AttentionGroup& group) {
    return group.plan_label == context.label;
  });
  MSTAR_CHECK(found != groups.end(),
              "resource '",
              key(),
              "': the step plans nothing for label ",
              context.label);
  return *found;
}

const Tensor& PlannedAttention::qo_indptr(const AttentionContext& context) const {
  return group(context).qo_indptr;
}

const Tensor& PlannedAttention::last_rows(const AttentionContext& context) const {
  return group(context).last_rows;
}

AttentionOptions PlannedAttention::options(const AttentionContext& context) const {
  AttentionOptions options = spec_.options;
  options.causal = slot(*context.step).causal;
  return options;
}

void PagedAttention::attend(Stream& stream,
                            const AttentionContext& context,
                            const Tensor& q,
                            const Tensor& k,
                            const Tensor& v,
                            Tensor& out) {
  if (k.defined()) {
    kv_->write_kv(stream, context, k, v);
  }
  ops::paged_attention(
      stream, q, group(context).qo_indptr, kv_->paged_kv(context), options(context), out);
}

void CrossAttentionResource::attend(Stream& stream,
                                    const AttentionContext& context,
                                    const Tensor& q,
                                    const Tensor& /*k*/,
                                    const Tensor& /*v*/,
                                    Tensor& out) {
  AttentionOptions all = options(context);
  all.causal = false;
  ops::paged_attention(stream, q, group(context).qo_indptr, kv_->paged_kv(context), all, out);
}

void CrossAttentionResource::write_context(Stream& stream,
                                           const AttentionContext& context,
                                           const Tensor& k,
                                           const Tensor& v) {
  kv_->write_kv(stream, context, k, v);
}

bool CrossAttentionResource::has_context_growth(const AttentionContext& context) const {
  return kv_->group(*context.step, context.label).num_tokens > 0;
}

void RaggedAttention::attend(Stream& stream,
                             const AttentionContext& context,
                             const Tensor& q,
                             const Tensor& k,
                             const Tensor& v,
                             Tensor& out) {
  const Tensor& indptr = group(context).qo_indptr;
  ops::ragged_attention(stream, q, k, v, indptr, indptr, options(context), out);
}

}  // namespace mstar
