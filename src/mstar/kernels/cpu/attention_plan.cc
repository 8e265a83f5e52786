#include <algorithm>
#include <cstring>

#include "mstar/kernels/cpu/attention.h"

namespace mstar {

namespace {

int32_t first_row(const AttentionParams& p, int32_t sequence) {
  if (p.qo_indptr != nullptr) {
    return p.qo_indptr[sequence];
  }
  return sequence == 0 ? 0 : static_cast<int32_t>(p.num_rows);
}

int32_t kv_length(const KvSource& kv, int32_t sequence) {
  if (kv.pages != nullptr) {
    const int32_t num_pages = kv.indptr[sequence + 1] - kv.indptr[sequence];
    return num_pages == 0 ? 0 : (num_pages - 1) * kv.page_size + kv.last_page_len[sequence];
  }
  if (kv.kv_indptr != nullptr) {
    return kv.kv_indptr[sequence + 1] - kv.kv_indptr[sequence];
  }
  return static_cast<int32_t>(kv.piece[0].tokens + kv.piece[1].tokens);
}

void zero_rows(const AttentionParams& p, int64_t begin) {
  const size_t bytes = static_cast<size_t>(p.head_dim * element_bytes(p.out_dtype));
  for (int64_t row = begin; row < p.num_rows; ++row) {
    for (int32_t head = 0; head < p.num_heads; ++head) {
      const int64_t element = row * p.out_token_stride + head * p.out_head_stride;
      std::memset(static_cast<char*>(p.out) + element * element_bytes(p.out_dtype), 0, bytes);
    }
  }
}

class Planner {
 public:
  explicit Planner(const AttentionParams& p) : p_(p) {}

  // The longest causal blocks come first: short ones fill the gaps at the end.
  void add_blocks(int32_t sequence, int32_t tokens) {
    const int32_t group = p_.num_heads / p_.num_kv_heads;
    const int32_t most = std::max(1, p_.max_rows / group);
    const int32_t num_blocks = (tokens + most - 1) / most;
    const int32_t size = (tokens + num_blocks - 1) / num_blocks;
    for (int32_t begin = (num_blocks - 1) * size; begin >= 0; begin -= size) {
      for (int32_t kv_head = 0; kv_head < p_.num_kv_heads && begin < tokens; ++kv_head) {
        add({sequence, kv_head, 1, begin, std::min(size, tokens - begin), 0, -1});
      }
    }
  }

  void add_decode(int32_t sequence) {
    const int32_t length = kv_length(p_.kv, sequence);
    const int32_t chunks = std::max(1, (length + kAttentionChunk - 1) / kAttentionChunk);
    const bool split = p_.split_chunks && chunks > 1;
    // Heads stay together as far as the tasks have enough to do.
    const int32_t alone = p_.num_seqs * (split ? chunks : 1);
    const int32_t wanted = p_.split_chunks ? (4 * p_.num_tasks + alone - 1) / alone : 1;
    // Only in pages is a head's row always as far from the next head's.
    const int32_t groups =
        p_.kv.pages == nullptr ? p_.num_kv_heads : std::clamp(wanted, 1, p_.num_kv_heads);
    for (int32_t group = 0; group < groups; ++group) {
      const int32_t first = p_.num_kv_heads * group / groups;
      const int32_t heads = p_.num_kv_heads * (group + 1) / groups - first;
      if (!split) {
        add({sequence, first, heads, 0, 0, chunks, -1});
        continue;
      }
      p_.pending[sequence * p_.num_kv_heads + first] = chunks;
      for (int32_t chunk = 0; chunk < chunks; ++chunk) {
        add({sequence, first, heads, chunk, 0, 1, num_partials_});
      }
    }
    num_partials_ += split ? chunks : 0;
  }

  int32_t num_items() const { return num_items_; }

 private:
  void add(const AttentionItem& item) {
    if (num_items_ < p_.max_items) {  // lengths beyond the op's bounds cannot overrun the list
      p_.items[num_items_++] = item;
    }
  }

  const AttentionParams& p_;
  int32_t num_items_ = 0;
  int32_t num_partials_ = 0;
};

}  // namespace

void plan_attention(const AttentionParams& p, int /*task*/) {
  Planner planner(p);
  for (int32_t sequence = 0; sequence < p.num_seqs; ++sequence) {
    const int32_t tokens = first_row(p, sequence + 1) - first_row(p, sequence);
    if (tokens > 1) {
      planner.add_blocks(sequence, tokens);
    }
  }
  for (int32_t sequence = 0; sequence < p.num_seqs; ++sequence) {
    if (first_row(p, sequence + 1) - first_row(p, sequence) == 1) {
      planner.add_decode(sequence);
    }
  }
  zero_rows(p, first_row(p, p.num_seqs));
  p.plan->num_items = planner.num_items();
  p.plan->next = 0;
}

void take_attention_items(const AttentionParams& p, int task) {
  float* scratch = p.scratch + task * p.scratch_floats;
  while (true) {
    const int32_t index = __atomic_fetch_add(&p.plan->next, 1, __ATOMIC_RELAXED);
    if (index >= p.plan->num_items) {
      return;
    }
    p.item(p, p.items[index], scratch);
  }
}

}  // namespace mstar
