#pragma once

#include <cstdint>

#include "mstar/tensor/stream.h"

namespace mstar {

struct AttentionOptions {
  float scale = 0.0F;     // multiplies q·k; 0 means 1/sqrt(head_dim)
  bool causal = true;     // the last query row of a sequence sees everything, earlier ones less
  int32_t window = 0;     // > 0: a query at position p sees keys in (p - window, p]
  float soft_cap = 0.0F;  // > 0: cap * tanh(score / cap)
};

// Paged keys and values of one layer as the kernels see them: plain pointers and index arrays in
// FlashInfer's words. The arrays are read when the op runs, so a captured step may be replayed
// with other lengths; `max_*` fix the work partition and must not be exceeded.
struct PagedKv {
  Tensor pages;                   // [num_pages, 2 (k, v), page_size, num_kv_heads, head_dim]
                                  // f32 or bf16; a strided view of one layer of the pool is fine
  Tensor paged_kv_indptr;         // [num_seqs + 1] i32: sequence s owns indices [s], [s + 1)
  Tensor paged_kv_indices;        // [>= indptr[num_seqs]] i32 page ids
  Tensor paged_kv_last_page_len;  // [num_seqs] i32, 1 … page_size (a sequence without pages: 0)
};

namespace ops {

// Attention of each sequence's new rows over its pages (which hold the new rows' own k and v
// already).
//   q, out      [tokens, num_heads, head_dim] f32 or bf16, packed by sequence, dense last dims
//   qo_indptr   [num_seqs + 1] i32 row ranges of q; rows at and after qo_indptr[num_seqs] are
//               padding and are set to zero in `out`
// GQA: q head h reads kv head h / (num_heads / num_kv_heads). Softmax in f32. A sequence without
// keys gives zeros. Results do not depend on what else is in the batch.
void paged_attention(Stream& stream,
                     const Tensor& q,
                     const Tensor& qo_indptr,
                     const PagedKv& kv,
                     const AttentionOptions& options,
                     Tensor& out);

// The same over packed keys and values.
//   k, v       [kv_tokens, num_kv_heads, head_dim]; any token stride
//   kv_indptr  [num_seqs + 1] i32
void ragged_attention(Stream& stream,
                      const Tensor& q,
                      const Tensor& k,
                      const Tensor& v,
                      const Tensor& qo_indptr,
                      const Tensor& kv_indptr,
                      const AttentionOptions& options,
                      Tensor& out);

// One sequence whose keys and values are two pieces: [prefix | own]. Denoise steps: a frozen
// prefix (text, committed windows) and the span being computed. Either piece may be empty.
//   k0, v0 [n0, num_kv_heads, head_dim], k1, v1 [n1, …]
void two_part_attention(Stream& stream,
                        const Tensor& q,
                        const Tensor& k0,
                        const Tensor& v0,
                        const Tensor& k1,
                        const Tensor& v1,
                        const AttentionOptions& options,
                        Tensor& out);

// Scatters rows of k and v into pages: row i goes to page token_to_page[i], slot
// token_to_slot[i]. Rows whose page is < 0 are dropped.
//   k, v                         [tokens, num_kv_heads, head_dim], any token stride
//   token_to_page, token_to_slot [tokens] i32, read when the op runs
void write_paged_kv(Stream& stream,
                    const Tensor& k,
                    const Tensor& v,
                    const Tensor& token_to_page,
                    const Tensor& token_to_slot,
                    Tensor& pages);

// Copies the resident rows of one sequence out of its pages: k, v [kv_len, num_kv_heads, head_dim].
void gather_paged_kv(Stream& stream, const PagedKv& kv, int64_t sequence, Tensor& k, Tensor& v);

}  // namespace ops
}  // namespace mstar
