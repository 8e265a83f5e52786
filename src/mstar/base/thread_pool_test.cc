#include "mstar/base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace mstar {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  ThreadPool pool(3);
  for (int num_tasks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(num_tasks));
    pool.parallel_for(num_tasks, [&](int task) { ++calls[static_cast<size_t>(task)]; });
    for (const auto& count : calls) {
      EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortJobsInARow) {
  ThreadPool pool(2);
  int64_t total = 0;
  for (int job = 0; job < 5000; ++job) {
    std::vector<int> parts(4);
    pool.parallel_for(4, [&](int task) { parts[static_cast<size_t>(task)] = job + task; });
    total += std::accumulate(parts.begin(), parts.end(), 0);
  }
  EXPECT_EQ(total, 4LL * (5000LL * 4999 / 2) + 5000 * 6);
}

TEST(ThreadPool, JobInsideATaskRunsOnTheSpot) {
  ThreadPool pool(2);
  std::atomic<int> calls{0};
  pool.parallel_for(8, [&](int) { pool.parallel_for(8, [&](int) { ++calls; }); });
  EXPECT_EQ(calls.load(), 64);
}

TEST(ThreadPool, SeveralCallersAtOnce) {
  ThreadPool pool(2);
  std::atomic<int> calls{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int job = 0; job < 200; ++job) {
        pool.parallel_for(5, [&](int) { ++calls; });
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(calls.load(), 4 * 200 * 5);
}

}  // namespace
}  // namespace mstar
