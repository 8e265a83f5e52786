#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mstar/collectives/comm_group.h"

namespace mstar {

struct ThreadGroupState;  // thread_group.cc

// Ranks that are threads of one process: they read each other's memory, meeting at a barrier before
// and after. Waiting threads sleep.
class ThreadGroup : public CommGroup {
 public:
  // The members of a new group, by rank. Each is used by one thread and may be destroyed in any
  // order; destroying one that others still wait for poisons the group.
  static std::vector<std::unique_ptr<ThreadGroup>> create(int world_size);

  ~ThreadGroup() override;

  int rank() const override { return rank_; }

  int world_size() const override;

  void all_reduce(Stream& stream, Tensor& x) override;
  void all_gather(Stream& stream, const Tensor& x, int dim, Tensor& out) override;
  void reduce_scatter(Stream& stream, const Tensor& x, int dim, Tensor& out) override;
  void broadcast(Stream& stream, Tensor& x, int source) override;
  void all_to_all(Stream& stream,
                  const Tensor& x,
                  int scatter_dim,
                  int gather_dim,
                  std::span<const int64_t> scatter_sizes,
                  Tensor& out) override;
  void barrier(Stream& stream) override;
  void abort(const std::string& reason) override;

 private:
  ThreadGroup(std::shared_ptr<ThreadGroupState> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  std::shared_ptr<ThreadGroupState> state_;
  int rank_;
};

// All groups of a tp x sp mesh of threads.
class ThreadMesh {
 public:
  ThreadMesh(int tp_size, int sp_size);

  int world_size() const { return static_cast<int>(groups_.size()); }

  // Groups of one rank of the joint world.
  JointGroups groups(int rank) const { return groups_[static_cast<size_t>(rank)]; }

  // Poisons every group.
  void abort(const std::string& reason);

 private:
  std::vector<std::unique_ptr<ThreadGroup>> members_;
  std::vector<JointGroups> groups_;
};

// Runs function(rank, its groups) on one thread per rank and waits for all. When one throws, the
// groups are poisoned, the others end too, and the first error is thrown on.
void run_ranks(ThreadMesh& mesh, const std::function<void(int rank, const JointGroups&)>& function);

}  // namespace mstar
