#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mstar/collectives/comm_group.h"
#include "mstar/tensor/stream.h"

namespace mstar {

// Ulysses sequence parallelism: outside of attention a rank holds a range of the tokens with all
// heads, inside it holds all tokens with a range of the heads; two all-to-all exchanges per
// attention move between the two. Lengths that do not divide give earlier ranks one token more.

struct SequenceRange {
  int64_t begin = 0;
  int64_t size = 0;
};

// Tokens of one rank.
SequenceRange sp_seq_split(int64_t num_tokens, int sp_size, int sp_rank);

// Sizes of all ranks.
std::vector<int64_t> sp_seq_sizes(int64_t num_tokens, int sp_size);

// This rank's rows of x [tokens, ...]: a view.
Tensor scatter_sequence(const CommGroup& sp, const Tensor& x);

// All ranks' rows: [local tokens, ...] -> [num_tokens, ...].
Tensor gather_sequence(Stream& stream, CommGroup& sp, const Tensor& x, int64_t num_tokens);

// This rank's heads of x [tokens, heads, head_dim]: a view. Fewer heads than ranks: the one head of
// this rank's neighbours. Throws Error(kInvalidArgument) when neither divides the other.
Tensor sp_head_slice(const CommGroup& sp, const Tensor& x);

// All heads of what sp_head_slice cut: [tokens, local heads, head_dim] -> [tokens, num_heads,
// head_dim]; the ranks divide num_heads.
Tensor sp_head_gather(Stream& stream, CommGroup& sp, const Tensor& x);

// [local tokens, heads, head_dim] -> [num_tokens, local heads, head_dim]. With fewer heads than
// ranks each head goes to ranks / heads neighbours.
Tensor sequence_to_heads(Stream& stream, CommGroup& sp, const Tensor& x, int64_t num_tokens);

// The way back: [num_tokens, local heads, head_dim] -> [local tokens, heads, head_dim].
Tensor heads_to_sequence(Stream& stream, CommGroup& sp, const Tensor& x);

// q, k and v of this rank's tokens [local tokens, heads, head_dim] -> attention's rows for them.
// `attend` gets all tokens of this rank's heads and returns [num_tokens, local heads, head_dim].
using AttendHeads = std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v)>;

struct UlyssesInputs {
  Tensor q;
  Tensor k;
  Tensor v;
  int64_t num_tokens = 0;  // of all ranks
};

Tensor ulysses_attention(Stream& stream,
                         CommGroup& sp,
                         const UlyssesInputs& inputs,
                         const AttendHeads& attend);

// The same through all-gathers instead of all-to-alls: moves more, but every rank's buffers have
// the same shape on every step.
Tensor ulysses_attention_all_gather(Stream& stream,
                                    CommGroup& sp,
                                    const UlyssesInputs& inputs,
                                    const AttendHeads& attend);

}  // namespace mstar
