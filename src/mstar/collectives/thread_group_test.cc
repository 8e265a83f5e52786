#include "mstar/collectives/thread_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "mstar/base/error.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

Tensor counted(const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (float& value : values) {
    value = first++;
  }
  return Tensor::from(values, shape);
}

// Runs function(stream, group) for every rank of a tp group.
void run_group(int world_size, const std::function<void(Stream&, CommGroup&)>& function) {
  ThreadMesh mesh(world_size, 1);
  run_ranks(mesh, [&](int, const JointGroups& groups) {
    ThreadPool pool(1);
    CpuStream stream(pool);
    function(stream, *groups.tp);
  });
}

class Worlds : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, Worlds, ::testing::Values(1, 2, 3, 4));

TEST_P(Worlds, AllReduceSumsInRankOrder) {
  const int world = GetParam();
  run_group(world, [&](Stream& stream, CommGroup& group) {
    for (int round = 0; round < 50; ++round) {
      // Sums whose value depends on the order: 1e8 + 1 - 1e8 …
      const float own = group.rank() == 0 ? 1e8F : group.rank() == world - 1 ? -1e8F : 1.0F;
      Tensor x = Tensor::from(std::vector<float>(7, own), {7});
      float want = 0.0F;
      for (int rank = 0; rank < world; ++rank) {
        want += rank == 0 ? 1e8F : rank == world - 1 ? -1e8F : 1.0F;
      }
      group.all_reduce(stream, x);
      EXPECT_EQ(x.to_floats(), std::vector<float>(7, world == 1 ? own : want));
    }
  });
}

TEST_P(Worlds, AllReduceOfBf16RoundsOnce) {
  const int world = GetParam();
  run_group(world, [&](Stream& stream, CommGroup& group) {
    Tensor x = Tensor::from(std::vector<float>(3, 1.0F + 0x1p-7F), {3}).to(DType::kBF16);
    group.all_reduce(stream, x);
    const float want = to_float(to_bfloat16(static_cast<float>(world) * (1.0F + 0x1p-7F)));
    EXPECT_EQ(x.to_floats()[0], want);
  });
}

TEST_P(Worlds, GatherTakesUnevenParts) {
  const int world = GetParam();
  run_group(world, [&](Stream& stream, CommGroup& group) {
    const Tensor x = counted({2, group.rank() + 1}, 10.0F * static_cast<float>(group.rank()));
    Tensor out = Tensor::empty({2, world * (world + 1) / 2}, DType::kF32);
    group.all_gather(stream, x, 1, out);
    const std::vector<float> got = out.to_floats();
    size_t column = 0;
    for (int rank = 0; rank < world; ++rank) {
      for (int index = 0; index <= rank; ++index, ++column) {
        EXPECT_EQ(got[column], static_cast<float>(10 * rank + index));
        EXPECT_EQ(got[got.size() / 2 + column], static_cast<float>(10 * rank + rank + 1 + index));
      }
    }
  });
}

TEST_P(Worlds, ReduceScatterIsAPartOfTheSum) {
  const int world = GetParam();
  run_group(world, [&](Stream& stream, CommGroup& group) {
    const Tensor x = counted({3, 2 * world, 2}, static_cast<float>(group.rank()));
    Tensor sum = x.copy();
    group.all_reduce(stream, sum);
    Tensor out = Tensor::empty({3, 2, 2}, DType::kF32);
    group.reduce_scatter(stream, x, 1, out);
    EXPECT_EQ(out.to_floats(),
              sum.slice(1, 2 * group.rank(), 2 * group.rank() + 2).copy().to_floats());
  });
}

TEST_P(Worlds, BroadcastAndBarrier) {
  const int world = GetParam();
  run_group(world, [&](Stream& stream, CommGroup& group) {
    for (int source = 0; source < world; ++source) {
      Tensor x = Tensor::from(std::vector<int64_t>{group.rank(), 5}, {2});
      group.broadcast(stream, x, source);
      EXPECT_EQ(x.to_ints(), (std::vector<int64_t>{source, 5}));
      group.barrier(stream);
    }
  });
}

TEST_P(Worlds, AllToAllThereAndBack) {
  const int world = GetParam();
  const int64_t heads = 2 * world;
  run_group(world, [&](Stream& stream, CommGroup& group) {
    // Rank r holds r + 1 rows of all heads; afterwards all rows of two heads.
    const int64_t rows = group.rank() + 1;
    const int64_t total = world * (world + 1) / 2;
    const Tensor x = counted({rows, heads, 3}, 1000.0F * static_cast<float>(group.rank()));
    const std::vector<int64_t> head_sizes(static_cast<size_t>(world), 2);
    Tensor by_heads = Tensor::empty({total, 2, 3}, DType::kF32);
    group.all_to_all(stream, x, 1, 0, head_sizes, by_heads);
    int64_t row = 0;
    for (int rank = 0; rank < world; ++rank) {
      for (int64_t index = 0; index <= rank; ++index, ++row) {
        EXPECT_EQ(by_heads.select(0, row).select(0, 0).to_floats()[0],
                  static_cast<float>(1000 * rank + index * heads * 3 + group.rank() * 6));
      }
    }
    std::vector<int64_t> row_sizes;
    for (int rank = 0; rank < world; ++rank) {
      row_sizes.push_back(rank + 1);
    }
    Tensor back = Tensor::empty({rows, heads, 3}, DType::kF32);
    group.all_to_all(stream, by_heads, 0, 1, row_sizes, back);
    EXPECT_EQ(back.to_floats(), x.to_floats());
  });
}

TEST(ThreadGroup, CapturedCollectivesReplay) {
  run_group(2, [&](Stream& stream, CommGroup& group) {
    Tensor x = counted({4}, static_cast<float>(group.rank()));
    stream.begin_capture();
    group.all_reduce(stream, x);
    const auto graph = stream.end_capture();
    EXPECT_EQ(x.to_floats(), (std::vector<float>{1, 3, 5, 7}));
    graph->replay();
    EXPECT_EQ(x.to_floats(), (std::vector<float>{2, 6, 10, 14}));
  });
}

TEST(ThreadGroup, AFailingRankEndsTheOthers) {
  ThreadMesh mesh(3, 1);
  std::atomic<int> num_unavailable{0};
  const auto run = [&] {
    run_ranks(mesh, [&](int rank, const JointGroups& groups) {
      if (rank == 1) {
        throw std::runtime_error("lost");
      }
      ThreadPool pool(1);
      CpuStream stream(pool);
      Tensor x = counted({4}, 0);
      try {
        groups.tp->all_reduce(stream, x);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
        ++num_unavailable;
        throw;
      }
    });
  };
  EXPECT_THROW(run(), std::exception);
  EXPECT_EQ(num_unavailable, 2);
}

TEST(ThreadGroup, AMemberThatLeavesEndsTheOthers) {
  auto members = ThreadGroup::create(2);
  std::thread waiting([&] {
    ThreadPool pool(1);
    CpuStream stream(pool);
    EXPECT_THROW(members[0]->barrier(stream), Error);
  });
  members[1].reset();
  waiting.join();
}

TEST(ThreadMesh, HasBothAxes) {
  ThreadMesh mesh(2, 3);
  std::atomic<int> sum{0};
  run_ranks(mesh, [&](int rank, const JointGroups& groups) {
    EXPECT_EQ(groups.rank(), rank);
    EXPECT_EQ(groups.world_size(), 6);
    ThreadPool pool(1);
    CpuStream stream(pool);
    Tensor x = Tensor::from(std::vector<float>{static_cast<float>(rank)}, {1});
    groups.tp->all_reduce(stream, x);
    EXPECT_EQ(x.to_floats()[0], static_cast<float>(4 * groups.sp->rank() + 1));
    groups.sp->all_reduce(stream, x);
    EXPECT_EQ(x.to_floats()[0], 15.0F);
    sum += rank;
  });
  EXPECT_EQ(sum, 15);
}

}  // namespace
}  // namespace mstar
