#include "mstar/components/parallel/sequence_parallel.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"

namespace mstar {

namespace {

Tensor contiguous(Stream& stream, const Tensor& x) {
  if (x.is_contiguous()) {
    return x;
  }
  Tensor dense = stream.empty(x.shape(), x.dtype());
  ops::copy(stream, x, dense);
  return dense;
}

[[noreturn]] void fail_heads(int64_t num_heads, int world_size) {
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[sequence_parallel] ",
                      num_heads,
                      " heads over ",
                      world_size,
                      " ranks: neither divides the other"));
}

// Heads of one rank: a range, or one head shared with neighbours.
SequenceRange head_range(int64_t num_heads, int world_size, int rank) {
  if (num_heads % world_size == 0) {
    const int64_t local = num_heads / world_size;
    return {local * rank, local};
  }
  if (world_size % num_heads != 0) {
    fail_heads(num_heads, world_size);
  }
  return {rank / (world_size / num_heads), 1};
}

// x with each head as often as ranks share it, so that every rank takes one.
Tensor replicate_heads(Stream& stream, const Tensor& x, int world_size) {
  const int64_t num_heads = x.dim(1);
  if (num_heads % world_size == 0) {
    return contiguous(stream, x);
  }
  if (world_size % num_heads != 0) {
    fail_heads(num_heads, world_size);
  }
  const int64_t copies = world_size / num_heads;
  Tensor out = stream.empty({x.dim(0), world_size, x.dim(2)}, x.dtype());
  for (int64_t head = 0; head < world_size; ++head) {
    Tensor target = out.slice(1, head, head + 1);
    ops::copy(stream, x.slice(1, head / copies, head / copies + 1), target);
  }
  return out;
}

}  // namespace

SequenceRange sp_seq_split(int64_t num_tokens, int sp_size, int sp_rank) {
  const int64_t base = num_tokens / sp_size;
  const int64_t more = num_tokens % sp_size;  // ranks below this one have one token more
  return {base * sp_rank + std::min<int64_t>(sp_rank, more), base + (sp_rank < more ? 1 : 0)};
}

std::vector<int64_t> sp_seq_sizes(int64_t num_tokens, int sp_size) {
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < sp_size; ++rank) {
    sizes.push_back(sp_seq_split(num_tokens, sp_size, rank).size);
  }
  return sizes;
}

Tensor scatter_sequence(const CommGroup& sp, const Tensor& x) {
  const SequenceRange range = sp_seq_split(x.dim(0), sp.world_size(), sp.rank());
  return x.slice(0, range.begin, range.begin + range.size);
}

Tensor gather_sequence(Stream& stream, CommGroup& sp, const Tensor& x, int64_t num_tokens) {
  if (sp.world_size() == 1) {
    return x;
  }
  Shape shape = x.shape();
  shape[0] = num_tokens;
  Tensor out = stream.empty(shape, x.dtype());
  sp.all_gather(stream, contiguous(stream, x), 0, out);
  return out;
}

Tensor sp_head_slice(const CommGroup& sp, const Tensor& x) {
  const SequenceRange heads = head_range(x.dim(1), sp.world_size(), sp.rank());
  return x.slice(1, heads.begin, heads.begin + heads.size);
}

Tensor sp_head_gather(Stream& stream, CommGroup& sp, const Tensor& x) {
  if (sp.world_size() == 1) {
    return x;
  }
  Tensor out = stream.empty({x.dim(0), x.dim(1) * sp.world_size(), x.dim(2)}, x.dtype());
  sp.all_gather(stream, contiguous(stream, x), 1, out);
  return out;
}

Tensor sequence_to_heads(Stream& stream, CommGroup& sp, const Tensor& x, int64_t num_tokens) {
  const int world = sp.world_size();
  if (world == 1) {
    return x;
  }
  const Tensor all = replicate_heads(stream, x, world);
  const int64_t local = all.dim(1) / world;
  const std::vector<int64_t> head_sizes(static_cast<size_t>(world), local);
  Tensor out = stream.empty({num_tokens, local, x.dim(2)}, x.dtype());
  sp.all_to_all(stream, all, 1, 0, head_sizes, out);
  return out;
}

Tensor heads_to_sequence(Stream& stream, CommGroup& sp, const Tensor& x) {
  const int world = sp.world_size();
  if (world == 1) {
    return x;
  }
  const std::vector<int64_t> sizes = sp_seq_sizes(x.dim(0), world);
  const int64_t own = sizes[static_cast<size_t>(sp.rank())];
  Tensor out = stream.empty({own, x.dim(1) * world, x.dim(2)}, x.dtype());
  sp.all_to_all(stream, contiguous(stream, x), 0, 1, sizes, out);
  return out;
}

Tensor ulysses_attention(Stream& stream,
                         CommGroup& sp,
                         const UlyssesInputs& inputs,
                         const AttendHeads& attend) {
  const Tensor q = sequence_to_heads(stream, sp, inputs.q, inputs.num_tokens);
  const Tensor k = sequence_to_heads(stream, sp, inputs.k, inputs.num_tokens);
  const Tensor v = sequence_to_heads(stream, sp, inputs.v, inputs.num_tokens);
  return heads_to_sequence(stream, sp, attend(q, k, v));
}

Tensor ulysses_attention_all_gather(Stream& stream,
                                    CommGroup& sp,
                                    const UlyssesInputs& inputs,
                                    const AttendHeads& attend) {
  const auto heads_of = [&](const Tensor& x) {
    return contiguous(stream, sp_head_slice(sp, gather_sequence(stream, sp, x, inputs.num_tokens)));
  };
  const Tensor q = heads_of(inputs.q);
  const Tensor k = heads_of(inputs.k);
  const Tensor v = heads_of(inputs.v);
  const Tensor out = sp_head_gather(stream, sp, attend(q, k, v));
  return contiguous(stream, scatter_sequence(sp, out));
}

}  // namespace mstar
