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

// One attention op. Meanings: ops/attention.h.
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
  int num_tasks = 1;
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

}  // namespace mstar
