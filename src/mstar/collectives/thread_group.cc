#include "mstar/collectives/thread_group.h"

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/collectives/region.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

constexpr int kMaxRanks = 64;

enum class Op : uint8_t {
  kNone,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kBarrier
};

// What a rank puts on the table before the first barrier of an operation.
struct Offer {
  Op op = Op::kNone;
  Block x;
  std::array<int64_t, kMaxRanks> scatter_sizes{};
};

}  // namespace

struct ThreadGroupState {
  explicit ThreadGroupState(int size) : world_size(size), offers(static_cast<size_t>(size)) {}

  // Waits until all ranks are here; throws when the group is poisoned.
  void meet() {
    std::unique_lock lock(mutex);
    check_alive();
    if (++num_here == world_size) {
      num_here = 0;
      ++generation;
      all_here.notify_all();
      return;
    }
    const uint64_t own = generation;
    all_here.wait(lock, [&] { return generation != own || poisoned; });
    if (generation == own) {
      check_alive();
    }
  }

  void poison(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (!poisoned) {
      poisoned = true;
      reason = why;
    }
    all_here.notify_all();
  }

  void check_alive() const {
    if (poisoned) {
      throw Error(ErrorCode::kUnavailable,
                  str_cat("[collectives] the group of ", world_size, " ranks is broken: ", reason));
    }
  }

  const int world_size;
  std::vector<Offer> offers;  // [world_size]; a rank's own until meet(), read by all until the next

  std::mutex mutex;
  std::condition_variable all_here;
  int num_here = 0;         // guarded by mutex, as all below
  uint64_t generation = 0;  // barriers passed
  bool poisoned = false;
  std::string reason;
};

namespace {

// Parameters of the enqueued operations. The member outlives every graph that holds them.
struct CommParams {
  ThreadGroupState* state;
  int32_t rank;
  Op op;
  Block x;
  Block out;
  int32_t dim;         // of the gather or scatter
  int32_t gather_dim;  // all_to_all
  int32_t source;      // broadcast
  std::array<int64_t, kMaxRanks> scatter_sizes;
};

int64_t size_along(const Block& block, int dim) {
  return block.dims[static_cast<size_t>(dim)];
}

void offer(const CommParams& p) {
  Offer& own = p.state->offers[static_cast<size_t>(p.rank)];
  own.op = p.op;
  own.x = p.x;
  own.scatter_sizes = p.scatter_sizes;
  p.state->meet();
  for (const Offer& other : p.state->offers) {
    MSTAR_CHECK(other.op == p.op, "ranks called different collectives");
  }
}

// Rank r sums the r-th part of all ranks' tensors and writes it to all of them: nobody else touches
// that part.
void run_all_reduce(const CommParams& p) {
  const auto& offers = p.state->offers;
  const int64_t count = p.x.num_elements();
  const int64_t begin = count * p.rank / p.state->world_size;
  const int64_t end = count * (p.rank + 1) / p.state->world_size;
  std::array<std::byte*, kMaxRanks> parts{};
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    MSTAR_CHECK(offers[rank].x.num_elements() == count && offers[rank].x.dtype == p.x.dtype,
                "all_reduce of different tensors");
    parts[rank] = offers[rank].x.data + begin * p.x.element_bytes;
  }
  const std::span<std::byte* const> all(parts.data(), offers.size());
  sum_elements({all.data(), all.size()}, all, p.x.dtype, end - begin);
}

void run_all_gather(const CommParams& p) {
  int64_t begin = 0;
  for (const Offer& other : p.state->offers) {
    const int64_t size = size_along(other.x, p.dim);
    copy_region({&other.x, p.dim, 0, size}, {&p.out, p.dim, begin, size});
    begin += size;
  }
  MSTAR_CHECK(begin == size_along(p.out, p.dim),
              "all_gather out is ",
              size_along(p.out, p.dim),
              ", the parts are ",
              begin);
}

void run_reduce_scatter(const CommParams& p) {
  const auto& offers = p.state->offers;
  const int64_t size = size_along(p.out, p.dim);
  int64_t inner = size;
  int64_t outer = 1;
  for (int dim = 0; dim < p.x.num_dims; ++dim) {
    (dim > p.dim ? inner : outer) *= dim == p.dim ? 1 : size_along(p.x, dim);
  }
  const int64_t step = inner * p.state->world_size;
  for (int64_t row = 0; row < outer; ++row) {
    std::array<const std::byte*, kMaxRanks> parts{};
    for (size_t rank = 0; rank < offers.size(); ++rank) {
      parts[rank] = offers[rank].x.data + (row * step + p.rank * inner) * p.x.element_bytes;
    }
    std::byte* out = p.out.data + row * inner * p.x.element_bytes;
    sum_elements({parts.data(), offers.size()}, {&out, 1}, p.x.dtype, inner);
  }
}

void run_broadcast(const CommParams& p) {
  if (p.rank != p.source) {
    const Block& from = p.state->offers[static_cast<size_t>(p.source)].x;
    copy_region({&from, 0, 0, from.dims[0]}, {&p.x, 0, 0, p.x.dims[0]});
  }
}

void run_all_to_all(const CommParams& p) {
  int64_t target = 0;
  for (const Offer& other : p.state->offers) {
    int64_t source = 0;
    for (int rank = 0; rank < p.rank; ++rank) {
      source += other.scatter_sizes[static_cast<size_t>(rank)];
    }
    const int64_t kept = other.scatter_sizes[static_cast<size_t>(p.rank)];
    const int64_t added = p.gather_dim == p.dim ? kept : size_along(other.x, p.gather_dim);
    // The box is what the other sends here; in `out` it is whole along scatter_dim.
    if (p.gather_dim == p.dim) {
      copy_region({&other.x, p.dim, source, kept}, {&p.out, p.dim, target, kept});
    } else {
      copy_region({&other.x, p.dim, source, kept}, {&p.out, p.gather_dim, target, added});
    }
    target += added;
  }
  MSTAR_CHECK(target == size_along(p.out, p.gather_dim),
              "all_to_all out is ",
              size_along(p.out, p.gather_dim),
              ", the parts are ",
              target);
}

void run_collective(const CommParams& p, int) {
  offer(p);
  switch (p.op) {
    case Op::kAllReduce: run_all_reduce(p); break;
    case Op::kAllGather: run_all_gather(p); break;
    case Op::kReduceScatter: run_reduce_scatter(p); break;
    case Op::kBroadcast: run_broadcast(p); break;
    case Op::kAllToAll: run_all_to_all(p); break;
    case Op::kBarrier:
    case Op::kNone: break;
  }
  p.state->meet();  // nobody's tensor or offer changes while others read it
}

int checked_dim(const Tensor& x, int dim) {
  const int index = dim < 0 ? dim + x.num_dims() : dim;
  MSTAR_CHECK(0 <= index && index < x.num_dims(), "dim ", dim, " of ", x.to_string());
  return index;
}

}  // namespace

std::vector<std::unique_ptr<ThreadGroup>> ThreadGroup::create(int world_size) {
  MSTAR_CHECK(1 <= world_size && world_size <= kMaxRanks, "world_size=", world_size);
  const auto state = std::make_shared<ThreadGroupState>(world_size);
  std::vector<std::unique_ptr<ThreadGroup>> members;
  for (int rank = 0; rank < world_size; ++rank) {
    members.emplace_back(new ThreadGroup(state, rank));
  }
  return members;
}

ThreadGroup::~ThreadGroup() {
  state_->poison(str_cat("rank ", rank_, " has left"));
}

int ThreadGroup::world_size() const {
  return state_->world_size;
}

void ThreadGroup::all_reduce(Stream& stream, Tensor& x) {
  CommParams p{state_.get(), rank_, Op::kAllReduce, Block::of(x), {}, 0, 0, 0, {}};
  as_cpu(stream).enqueue("all_reduce", 1, p, &run_collective);
}

void ThreadGroup::all_gather(Stream& stream, const Tensor& x, int dim, Tensor& out) {
  CommParams p{state_.get(),
               rank_,
               Op::kAllGather,
               Block::of(x),
               Block::of(out),
               checked_dim(x, dim),
               0,
               0,
               {}};
  as_cpu(stream).enqueue("all_gather", 1, p, &run_collective);
}

void ThreadGroup::reduce_scatter(Stream& stream, const Tensor& x, int dim, Tensor& out) {
  const int index = checked_dim(x, dim);
  MSTAR_CHECK(
      x.dim(index) == out.dim(index) * world_size(), x.to_string(), " to ", out.to_string());
  CommParams p{
      state_.get(), rank_, Op::kReduceScatter, Block::of(x), Block::of(out), index, 0, 0, {}};
  as_cpu(stream).enqueue("reduce_scatter", 1, p, &run_collective);
}

void ThreadGroup::broadcast(Stream& stream, Tensor& x, int source) {
  CommParams p{state_.get(), rank_, Op::kBroadcast, Block::of(x), {}, 0, 0, source, {}};
  as_cpu(stream).enqueue("broadcast", 1, p, &run_collective);
}

void ThreadGroup::all_to_all(Stream& stream,
                             const Tensor& x,
                             int scatter_dim,
                             int gather_dim,
                             std::span<const int64_t> scatter_sizes,
                             Tensor& out) {
  CommParams p{state_.get(),
               rank_,
               Op::kAllToAll,
               Block::of(x),
               Block::of(out),
               checked_dim(x, scatter_dim),
               checked_dim(x, gather_dim),
               0,
               {}};
  MSTAR_CHECK(static_cast<int>(scatter_sizes.size()) == world_size());
  int64_t total = 0;
  for (size_t rank = 0; rank < scatter_sizes.size(); ++rank) {
    p.scatter_sizes[rank] = scatter_sizes[rank];
    total += scatter_sizes[rank];
  }
  MSTAR_CHECK(total == x.dim(p.dim), "parts of ", total, " from ", x.to_string());
  as_cpu(stream).enqueue("all_to_all", 1, p, &run_collective);
}

void ThreadGroup::barrier(Stream& stream) {
  CommParams p{state_.get(), rank_, Op::kBarrier, {}, {}, 0, 0, 0, {}};
  as_cpu(stream).enqueue("barrier", 1, p, &run_collective);
}

void ThreadGroup::abort(const std::string& reason) {
  state_->poison(str_cat("rank ", rank_, ": ", reason));
}

ThreadMesh::ThreadMesh(int tp_size, int sp_size) {
  groups_.resize(static_cast<size_t>(tp_size * sp_size));
  const auto at = [&](int tp_rank, int sp_rank) -> JointGroups& {
    return groups_[static_cast<size_t>(sp_rank * tp_size + tp_rank)];
  };
  for (int sp_rank = 0; sp_rank < sp_size && tp_size > 1; ++sp_rank) {
    auto group = ThreadGroup::create(tp_size);
    for (int tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
      members_.push_back(std::move(group[static_cast<size_t>(tp_rank)]));
      at(tp_rank, sp_rank).tp = members_.back().get();
    }
  }
  for (int tp_rank = 0; tp_rank < tp_size && sp_size > 1; ++tp_rank) {
    auto group = ThreadGroup::create(sp_size);
    for (int sp_rank = 0; sp_rank < sp_size; ++sp_rank) {
      members_.push_back(std::move(group[static_cast<size_t>(sp_rank)]));
      at(tp_rank, sp_rank).sp = members_.back().get();
    }
  }
}

void ThreadMesh::abort(const std::string& reason) {
  for (const auto& member : members_) {
    member->abort(reason);
  }
}

void run_ranks(ThreadMesh& mesh, const std::function<void(int, const JointGroups&)>& function) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        function(rank, mesh.groups(rank));
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) {
            first = std::current_exception();
          }
        }
        mesh.abort("its function threw");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace mstar
