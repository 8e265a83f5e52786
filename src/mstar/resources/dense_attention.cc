#include "mstar/resources/dense_attention.h"

#include <algorithm>

#include "mstar/base/check.h"

namespace mstar {

std::vector<std::shared_ptr<DenseAttention::Prefix>>& DenseAttention::held(
    const StepContext& context) {
  return held_[static_cast<size_t>(context.slot)];
}

void DenseAttention::remove_request(RequestHandle request) {
  std::erase_if(prefixes_, [request](const auto& prefix) { return prefix->request == request; });
}

void DenseAttention::plan(const SubmoduleStep& step, const StepContext& context) {
  PlannedAttention::plan(step, context);
  if (step.attention.find(id()) == nullptr) {
    return;
  }
  MSTAR_CHECK(!context.leased(), "resource '", key(), "': a captured step needs paged attention");
  MSTAR_CHECK(!step.kv.find(kv_->id())->commit,
              "resource '",
              key(),
              "': rows that are not written cannot be committed");
  held(context).clear();
  for (const KvGroupPlan& group : kv_->groups(context)) {
    for (const SequenceView& view : group.sequences) {
      auto known = std::find_if(prefixes_.begin(), prefixes_.end(), [&](const auto& prefix) {
        return prefix->request == view.request && prefix->label == view.label;
      });
      if (known == prefixes_.end()) {
        known = prefixes_.insert(known, nullptr);
      }
      if (*known == nullptr || (*known)->generation != view.generation) {
        *known = std::make_shared<Prefix>(
            Prefix{view.request,
                   view.label,
                   view.generation,
                   std::vector<Prefix::Layer>(static_cast<size_t>(kv_->spec().num_layers))});
      }
      held(context).push_back(*known);
    }
  }
}

void DenseAttention::finish(const StepContext& context) {
  held(context).clear();
}

void DenseAttention::attend(Stream& stream,
                            const AttentionContext& context,
                            const Tensor& q,
                            const Tensor& k,
                            const Tensor& v,
                            Tensor& out) {
  const KvGroupPlan& plan = kv_->group(*context.step, context.label);
  const PagedKv paged = kv_->paged_kv(context);
  const int32_t* rows = group(context).qo_indptr.data<int32_t>();
  const AttentionOptions all = options(context);
  // Views of earlier groups come first in `held`.
  const auto first = static_cast<size_t>(plan.sequences.data() -
                                         kv_->groups(*context.step).front().sequences.data());
  for (size_t sequence = 0; sequence < plan.sequences.size(); ++sequence) {
    if (rows[sequence] == rows[sequence + 1]) {
      continue;
    }
    Prefix::Layer& layer =
        held(*context.step)[first + sequence]->layers[static_cast<size_t>(context.layer)];
    if (!layer.k.defined() || layer.k.dtype() != k.dtype()) {
      const Shape shape{plan.sequences[sequence].prefix_len, k.dim(1), k.dim(2)};
      layer.k = Tensor::empty(shape, k.dtype());
      layer.v = Tensor::empty(shape, k.dtype());
      ops::gather_paged_kv(stream, paged, static_cast<int64_t>(sequence), layer.k, layer.v);
    }
    const auto cut = [&](const Tensor& x) {
      return x.slice(0, rows[sequence], rows[sequence + 1]);
    };
    Tensor own_out = cut(out);
    ops::two_part_attention(stream, cut(q), layer.k, layer.v, cut(k), cut(v), all, own_out);
  }
}

}  // namespace mstar
