#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mstar/tensor/stream.h"

namespace mstar {

// One rank's place in a group that computes together (one axis of a mesh). All ranks call the same
// operations in the same order; each enqueues on its own stream, so collectives are captured and
// replayed like any op. Sums are taken in f32 in the order of the ranks: every rank gets the same
// bits, whatever the timing.
//
// Tensors are contiguous, f32 or bf16 where they are summed, any plain type where they are moved.
// A peer that failed or left makes every call throw Error(kUnavailable) instead of waiting on.
// One thread: the rank's executor; abort() from any.
class CommGroup {
 public:
  CommGroup() = default;
  virtual ~CommGroup() = default;

  CommGroup(const CommGroup&) = delete;
  CommGroup& operator=(const CommGroup&) = delete;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // x becomes the sum over ranks.
  virtual void all_reduce(Stream& stream, Tensor& x) = 0;

  // out = the ranks' x, one after the other along `dim`. Ranks may bring different sizes along it.
  virtual void all_gather(Stream& stream, const Tensor& x, int dim, Tensor& out) = 0;

  // out = this rank's part of the sum over ranks, split evenly along `dim`.
  virtual void reduce_scatter(Stream& stream, const Tensor& x, int dim, Tensor& out) = 0;

  // x of every rank becomes that of rank `source`.
  virtual void broadcast(Stream& stream, Tensor& x, int source) = 0;

  // Sends the piece of x that stands at rank r's place along `scatter_dim` (scatter_sizes[r] long)
  // to rank r; out = what came in, in the order of the ranks along `gather_dim`.
  virtual void all_to_all(Stream& stream,
                          const Tensor& x,
                          int scatter_dim,
                          int gather_dim,
                          std::span<const int64_t> scatter_sizes,
                          Tensor& out) = 0;

  // Returns when all ranks have come here.
  virtual void barrier(Stream& stream) = 0;

  // Poisons the group: whoever waits or calls later gets Error(kUnavailable) with `reason`.
  virtual void abort(const std::string& reason) = 0;
};

// The group of one rank: sums and barriers do nothing, moves copy. Stateless and shared.
CommGroup& single_rank_group();

// The two axes of one rank: tensor parallel (heads and features) and sequence parallel (tokens).
// KV heads are divided by the joint world.
struct JointGroups {
  CommGroup* tp = &single_rank_group();
  CommGroup* sp = &single_rank_group();

  int world_size() const { return tp->world_size() * sp->world_size(); }

  // tp runs fastest: ranks of one tp group are neighbours.
  int rank() const { return sp->rank() * tp->world_size() + tp->rank(); }
};

}  // namespace mstar
