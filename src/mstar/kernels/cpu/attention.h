#pragma once

#include "mstar/kernels/cpu/isa.h"
#include "mstar/tensor/dtype.h"

namespace mstar {

// Keys and values side by side in memory, `tokens` rows of `num_kv_heads` heads.
struct KvPiece {
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t k_token_stride = 0;  // in elements, as all strides here
  int64_t k_head_stride = 0;
  int64_t v_token_stride = 0;
  int64_t v_head_stride = 0;
  int64_t tokens = 0;
};

// The keys of one op: either pages, or packed pieces that stand one after the other.
struct KvSource {
  DType dtype = DType::kF32;

  // Pages (pages != nullptr).
  const void* pages = nullptr;
  int64_t page_stride = 0;
  int64_t value_offset = 0;  // from a key to its value
  int64_t slot_stride = 0;
  int64_t head_stride = 0;
  int32_t page_size = 0;
  const int32_t* indptr = nullptr;
  const int32_t* indices = nullptr;
  const int32_t* last_page_len = nullptr;

  // Packed. kv_indptr (null with one sequence) cuts the first piece by sequence.
  KvPiece piece[2];
  const int32_t* kv_indptr = nullptr;
};

// A piece of an attention op that one task does at a time. `rows` > 0: that many query tokens of a
// sequence, from `begin` on, against all its keys. `rows` == 0: the only query token of a sequence
// (decode) against the key chunks [begin, begin + chunks), for kv_heads heads: side by side in a
// token's row, they are read in the order of memory.
struct AttentionItem {
  int32_t sequence = 0;
  int32_t kv_head = 0;
  int32_t kv_heads = 1;
  int32_t begin = 0;
  int32_t rows = 0;
  int32_t chunks = 0;
  int32_t partial = -1;  // decode by several tasks: where the sequence's first chunk's results go
};

// Decode reads keys in chunks at fixed places; each chunk has a softmax of its own and the chunks
// are folded in order, so the result does not depend on who does which chunk.
inline constexpr int32_t kAttentionChunk = 512;

// What the plan leaves for the tasks, in the op's workspace.
struct AttentionPlan {
  int32_t num_items = 0;
  int32_t next = 0;  // the next item to take, atomic
};

// One attention op. Meanings: ops/attention.h. It is two steps: plan_attention (one task) cuts the
// work by the lengths of the moment, take_attention_items gives items to `item` until none is left.
struct AttentionParams {
  const void* q = nullptr;
  void* out = nullptr;
  DType q_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  int64_t out_token_stride = 0;
  int64_t out_head_stride = 0;
  int64_t num_rows = 0;                // rows of q and out, padding included
  const int32_t* qo_indptr = nullptr;  // null: one sequence, all rows
  int32_t num_seqs = 1;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  KvSource kv;
  float scale = 0.0F;
  float soft_cap = 0.0F;
  int32_t window = 0;
  bool causal = false;
  bool split_chunks = false;  // decode: chunks are items of their own

  AttentionPlan* plan = nullptr;
  AttentionItem* items = nullptr;
  int32_t max_items = 0;
  int32_t max_rows = 0;        // query rows (tokens x group) an item may have
  int32_t* pending = nullptr;  // [num_seqs, num_kv_heads] chunks not done yet; split_chunks
  // [chunk, num_kv_heads, group, head_dim + 2]: sums, maximum, total; split_chunks
  float* partial = nullptr;
  float* scratch = nullptr;  // [num_tasks, scratch_floats]
  int64_t scratch_floats = 0;
  int num_tasks = 1;
  void (*item)(const AttentionParams&, const AttentionItem&, float* scratch) = nullptr;
};

struct PagedWriteParams {
  const void* k = nullptr;
  const void* v = nullptr;
  DType dtype = DType::kF32;  // of k and v
  int64_t k_token_stride = 0;
  int64_t k_head_stride = 0;
  int64_t v_token_stride = 0;
  int64_t v_head_stride = 0;
  const int32_t* token_to_page = nullptr;
  const int32_t* token_to_slot = nullptr;
  int64_t tokens = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  void* pages = nullptr;
  DType pages_dtype = DType::kF32;
  int64_t page_stride = 0;
  int64_t value_offset = 0;
  int64_t slot_stride = 0;
  int64_t head_stride = 0;
  int num_tasks = 1;
};

struct PagedGatherParams {
  KvSource kv;
  int64_t sequence = 0;
  int64_t tokens = 0;  // rows of k and v; rows past the resident ones are set to zero
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kF32;
  int64_t k_token_stride = 0;
  int64_t k_head_stride = 0;
  int64_t v_token_stride = 0;
  int64_t v_head_stride = 0;
  int num_tasks = 1;
};

// Fills p.plan and p.items from the lengths behind the index arrays, and zeroes padding rows.
void plan_attention(const AttentionParams& p, int task);

void take_attention_items(const AttentionParams& p, int task);

}  // namespace mstar

// cpu/attention_amx.cc: bf16 queries, keys and values. Decode is avx512_bf16's.
namespace mstar::amx {
void attention_item(const AttentionParams& p, const AttentionItem& item, float* scratch);
int64_t attention_scratch_floats(int32_t max_rows, int32_t num_heads, int32_t head_dim);
}  // namespace mstar::amx

MSTAR_DECLARE_PER_ISA(
    void attention_item(const AttentionParams& p, const AttentionItem& item, float* scratch);
    // Floats of scratch that a task needs.
    int64_t attention_scratch_floats(int32_t max_rows, int32_t num_heads, int32_t head_dim);
    void write_paged_kv(const PagedWriteParams& p, int task);
    void gather_paged_kv(const PagedGatherParams& p, int task);)
