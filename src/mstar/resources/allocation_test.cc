// Steps that look like the ones before allocate nothing.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "mstar/resources/positions.h"
#include "mstar/resources/sampler.h"
#include "mstar/resources/test_rig.h"

namespace {

std::atomic<int64_t> num_allocations{0};

void* counted(std::size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) {
    return memory;
  }
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace mstar {
namespace {

TEST(Allocation, DecodeStepsAllocateNothing) {
  testing::Rig rig({{"kv",
                     KVSpec{.num_layers = 1,
                            .num_kv_heads = 1,
                            .head_dim = 8,
                            .page_size = 64,
                            .max_num_pages = 40,
                            .dtype = DType::kF32}},
                    {"attn", AttentionSpec{.kv = "kv"}},
                    {"pos", PositionSpec{.kv = "kv", .rope = {.head_dim = 8}}},
                    {"sampler", SamplerSpec{.vocab_size = 10}}});
  constexpr RequestHandle kNumRequests = 8;
  for (RequestHandle request = 0; request < kNumRequests; ++request) {
    rig.runner().ingest_request(request, {});
  }
  SubmoduleStep step;
  StepContext context;
  const auto decode = [&](int number) {
    step.clear();
    context.slot = number % 2;
    for (RequestHandle request = 0; request < kNumRequests; ++request) {
      step.add_segment(request, kMainLabel, 1);
    }
    step.kv.add(0);
    step.attention.add(1);
    step.position.add(2);
    step.sampler.add(3);
    return rig.run(step, context, [](const StepContext&) {});
  };
  for (int number = 0; number < 4; ++number) {
    ASSERT_TRUE(decode(number));
  }
  const int64_t before = num_allocations.load();
  bool all = true;
  for (int number = 4; number < 40; ++number) {
    all = decode(number) && all;
  }
  EXPECT_EQ(num_allocations.load() - before, 0);
  EXPECT_TRUE(all);
}

}  // namespace
}  // namespace mstar
