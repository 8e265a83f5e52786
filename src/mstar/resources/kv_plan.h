#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "mstar/kernels/ops/attention.h"
#include "mstar/resources/static_array.h"
#include "mstar/resources/step.h"

namespace mstar {

// One segment of a planned step, in packing order.
struct SequenceView {
  RequestHandle request = -1;
  LabelId label = kMainLabel;
  int32_t segment = 0;     // its index in the step's segments
  int32_t num_new = 0;     // tokens written by the step
  int64_t first_row = 0;   // of its tokens in the group's packed arrays
  int64_t prefix_len = 0;  // resident tokens before the step
  int64_t kv_len = 0;      // resident tokens while it runs: prefix_len + num_new
  int64_t start = 0;       // tokens the stream ever held before: index of the first new one
  uint64_t generation = 0;
};

// Index arrays of one plan label for one step, FlashInfer's words. `num_tokens` rows are real;
// write addresses behind them are -1, which the write drops.
struct KvGroupPlan {
  LabelId plan_label = -1;
  int64_t num_tokens = 0;
  std::span<const SequenceView> sequences;
  Tensor paged_kv_indptr;         // [num_seqs + 1] i32
  Tensor paged_kv_indices;        // [pages] i32, all of the buffer under a lease
  Tensor paged_kv_last_page_len;  // [num_seqs] i32
  Tensor token_to_page;           // [tokens] i32, all of the buffer under a lease
  Tensor token_to_slot;           // likewise

  int64_t num_seqs() const { return static_cast<int64_t>(sequences.size()); }
};

// Where the tokens at resident positions [first, last) of a stream go: page and slot of each.
void fill_write_addresses(std::span<const int32_t> pages,
                          int64_t first,
                          int64_t last,
                          int64_t page_size,
                          int32_t* token_to_page,
                          int32_t* token_to_slot);

// Buffers behind one group.
struct KvArrays {
  LabelId plan_label = -1;
  StaticArray<int32_t> indptr;
  StaticArray<int32_t> indices;
  StaticArray<int32_t> last_page_len;
  StaticArray<int32_t> token_to_page;
  StaticArray<int32_t> token_to_slot;

  void reserve(int64_t num_seqs, int64_t num_tokens, int64_t num_pages, bool fixed);
};

// The plan of one slot: groups and their buffers, written by the step loop, read by the executor.
// Leased steps write to fixed buffers kept per plan label, eager ones to growing buffers.
class KvPlan {
 public:
  // Fixed buffers for `label`.
  void reserve_leased(LabelId label, int64_t num_seqs, int64_t num_tokens, int64_t num_pages);

  // Forgets the groups, keeps the buffers. `num_segments` views will be added at most: spans into
  // them stay valid.
  void begin(size_t num_segments, bool leased);

  // Buffers of the next group.
  KvArrays& next_arrays(LabelId plan_label);

  // Null when the step has no such label.
  const KvGroupPlan* find(LabelId plan_label) const;

  std::vector<KvGroupPlan> groups;
  std::vector<SequenceView> views;  // of all groups, in packing order
  bool leased = false;

 private:
  std::deque<KvArrays> leased_arrays_;
  std::deque<KvArrays> eager_arrays_;
  size_t num_eager_ = 0;
};

}  // namespace mstar
