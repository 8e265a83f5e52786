#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "mstar/tensor/arena.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

struct ScaleParams {
  const float* x;
  float* y;
  float factor;
  int64_t size;
  int num_tasks;
};

void scale(Stream& stream, const Tensor& x, float factor, Tensor& y) {
  const ScaleParams params{x.data<float>(), y.data<float>(), factor, x.num_elements(), 3};
  as_cpu(stream).enqueue("scale", params.num_tasks, params, [](const ScaleParams& p, int task) {
    for (int64_t index = task; index < p.size; index += p.num_tasks) {
      p.y[index] = p.factor * p.x[index];
    }
  });
}

TEST(CpuStream, ReplayRunsTheSameOpsOnNewData) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  Tensor input = Tensor::from(std::array{1.0F, 2.0F, 3.0F, 4.0F}, {4});
  Tensor output = Tensor::empty({4}, DType::kF32);

  stream.begin_capture();
  {
    Tensor middle = stream.empty({4}, DType::kF32);  // the graph keeps its memory
    scale(stream, input, 2.0F, middle);
    scale(stream, middle, 5.0F, output);
  }
  const auto graph = stream.end_capture();
  EXPECT_EQ(graph->num_ops(), 2);
  EXPECT_EQ(output.to_floats(), (std::vector<float>{10, 20, 30, 40}));

  input.data<float>()[3] = 7.0F;
  graph->replay();
  EXPECT_EQ(output.to_floats(), (std::vector<float>{10, 20, 30, 70}));
  EXPECT_EQ(static_cast<CpuGraph&>(*graph).op_names()[0], "scale x3");
}

TEST(CpuStream, SteadyStateAllocatesNothing) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const Tensor x = Tensor::zeros({1000}, DType::kF32);
  const auto step = [&] {
    Tensor a = stream.empty({1000}, DType::kF32);
    scale(stream, x, 1.0F, a);
    Tensor b = stream.empty({1000}, DType::kF32);
    scale(stream, a, 1.0F, b);
  };
  step();
  const auto warm = stream.memory_stats();
  for (int repeat = 0; repeat < 100; ++repeat) {
    step();
  }
  EXPECT_EQ(stream.memory_stats().num_upstream_allocations, warm.num_upstream_allocations);
  EXPECT_EQ(stream.memory_stats().bytes_in_use, 0U);
}

TEST(CachingAllocator, RoundsUpByAtMostAnEighth) {
  CachingAllocator allocator;
  for (size_t size = 600; size < 5000000; size = size * 9 / 7) {
    const StoragePtr storage(allocator.allocate(size));
    EXPECT_GE(storage->size_bytes(), size);
    EXPECT_LE(storage->size_bytes(), size + size / 8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->data()) % 64, 0U);
  }
}

TEST(ArenaAllocator, BlocksShareChunksThatGoBackWithTheLast) {
  ArenaAllocator arena;
  constexpr int64_t kBlock = 1 << 20;
  {
    std::vector<Tensor> blocks;
    for (int index = 0; index < 16; ++index) {  // two chunks and a bit
      blocks.push_back(Tensor::empty({kBlock - index}, DType::kU8, arena));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().bytes()) % 64, 0U);
      std::memset(blocks.back().bytes(), index, static_cast<size_t>(kBlock - index));
    }
    EXPECT_EQ(arena.bytes_held(), 3 * ArenaAllocator::kChunkBytes);
    for (int index = 0; index < 16; ++index) {
      const auto last = static_cast<size_t>(kBlock - index - 1);
      EXPECT_EQ(static_cast<int>(blocks[static_cast<size_t>(index)].bytes()[0]), index);
      EXPECT_EQ(static_cast<int>(blocks[static_cast<size_t>(index)].bytes()[last]), index);
    }
    blocks.erase(blocks.begin(), blocks.begin() + 9);  // all of the first chunk, some of the second
    EXPECT_EQ(arena.bytes_held(), 2 * ArenaAllocator::kChunkBytes);
  }
  EXPECT_EQ(arena.bytes_held(), ArenaAllocator::kChunkBytes);  // kept for the next
  const Tensor small = Tensor::empty({1}, DType::kU8, arena);
  EXPECT_EQ(arena.bytes_held(), ArenaAllocator::kChunkBytes);
  const Tensor large = Tensor::empty({4 * kBlock}, DType::kU8, arena);  // not a chunk's
  EXPECT_EQ(arena.bytes_held(), ArenaAllocator::kChunkBytes);
}

TEST(CachingAllocator, GraphsMayShareTheirTemporaries) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const auto memory = std::make_shared<CachingAllocator>();
  const Tensor x = Tensor::zeros({5000}, DType::kF32);
  std::vector<std::unique_ptr<CapturedGraph>> graphs;
  for (int bucket = 0; bucket < 3; ++bucket) {
    stream.begin_capture(memory);
    {
      Tensor y = stream.empty({5000}, DType::kF32);
      scale(stream, x, 1.0F, y);
    }
    graphs.push_back(stream.end_capture());
  }
  EXPECT_EQ(memory->stats().num_upstream_allocations, 1);
}

}  // namespace
}  // namespace mstar
