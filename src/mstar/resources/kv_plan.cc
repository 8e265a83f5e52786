#include "mstar/resources/kv_plan.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/resources/page_pool.h"

namespace mstar {

void fill_write_addresses(std::span<const int32_t> pages,
                          int64_t first,
                          int64_t last,
                          int64_t page_size,
                          int32_t* token_to_page,
                          int32_t* token_to_slot) {
  for (int64_t position = first; position < last; ++position) {
    *token_to_page++ = pages[static_cast<size_t>(position / page_size)];
    *token_to_slot++ = static_cast<int32_t>(position % page_size);
  }
}

void KvArrays::reserve(int64_t num_seqs, int64_t num_tokens, int64_t num_pages, bool fixed) {
  indptr.reserve(num_seqs + 1, 0, fixed);
  indices.reserve(num_pages, PagePool::kSinkPage, fixed, false);
  last_page_len.reserve(num_seqs, 0, fixed);
  token_to_page.reserve(num_tokens, -1, fixed);
  token_to_slot.reserve(num_tokens, 0, fixed);
}

void KvPlan::reserve_leased(LabelId label,
                            int64_t num_seqs,
                            int64_t num_tokens,
                            int64_t num_pages) {
  auto arrays = std::find_if(leased_arrays_.begin(),
                             leased_arrays_.end(),
                             [label](const KvArrays& a) { return a.plan_label == label; });
  if (arrays == leased_arrays_.end()) {
    arrays = leased_arrays_.emplace(leased_arrays_.end());
    arrays->plan_label = label;
  }
  arrays->reserve(num_seqs, num_tokens, num_pages, true);
}

void KvPlan::begin(size_t num_segments, bool is_leased) {
  groups.clear();
  views.clear();
  views.reserve(num_segments);
  leased = is_leased;
  num_eager_ = 0;
}

KvArrays& KvPlan::next_arrays(LabelId plan_label) {
  if (leased) {
    for (KvArrays& arrays : leased_arrays_) {
      if (arrays.plan_label == plan_label) {
        return arrays;
      }
    }
    MSTAR_CHECK(false, "no static buffers for plan label ", plan_label);
  }
  if (num_eager_ == eager_arrays_.size()) {
    eager_arrays_.emplace_back();
    eager_arrays_.back().reserve(8, 64, 64, false);
  }
  return eager_arrays_[num_eager_++];
}

const KvGroupPlan* KvPlan::find(LabelId plan_label) const {
  for (const KvGroupPlan& group : groups) {
    if (group.plan_label == plan_label) {
      return &group;
    }
  }
  return nullptr;
}

}  // namespace mstar
