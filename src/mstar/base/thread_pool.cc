#include "mstar/base/thread_pool.h"

#include <algorithm>

#include "mstar/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mstar {

namespace {

// Set on a thread while it runs tasks: a job started inside a task runs on the spot.
thread_local bool inside_task = false;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// About 100 us of pauses: longer than the gap between two ops of a forward, short enough that an
// idle server does not burn its cores. A thread sanitizer build sleeps at once.
#ifdef MSTAR_TSAN
constexpr int kSpins = 1;
#else
constexpr int kSpins = 4000;
#endif

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  if (num_threads <= 0) {
    num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  for (int worker = 1; worker < num_threads; ++worker) {
    workers_.emplace_back([this] { work(); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(owner_);
    stop_.store(true, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    generation_.notify_all();
  }
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::take_tasks() {
  inside_task = true;
  const Job job = job_;
  for (int task = next_task_.fetch_add(1, std::memory_order_relaxed); task < job.num_tasks;
       task = next_task_.fetch_add(1, std::memory_order_relaxed)) {
    job.function(job.argument, task);
  }
  inside_task = false;
}

void ThreadPool::work() {
  uint32_t seen = 0;
  while (true) {
    int spins = kSpins;
    while (generation_.load(std::memory_order_acquire) == seen && --spins > 0) {
      relax();
    }
    while (generation_.load(std::memory_order_acquire) == seen) {
      num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
      generation_.wait(seen, std::memory_order_seq_cst);
      num_sleeping_.fetch_sub(1, std::memory_order_relaxed);
    }
    if (stop_.load(std::memory_order_relaxed)) {
      return;
    }
    seen = generation_.load(std::memory_order_acquire);
    take_tasks();
    num_busy_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::run(int num_tasks, void (*function)(void*, int), void* argument) {
  MSTAR_DCHECK(num_tasks >= 0);
  std::unique_lock lock(owner_, std::defer_lock);
  if (num_tasks <= 1 || workers_.empty() || inside_task || !lock.try_lock()) {
    for (int task = 0; task < num_tasks; ++task) {
      function(argument, task);
    }
    return;
  }
  job_ = {function, argument, num_tasks};
  next_task_.store(0, std::memory_order_relaxed);
  num_busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (num_sleeping_.load(std::memory_order_seq_cst) > 0) {
    generation_.notify_all();
  }
  take_tasks();
  int spins = 0;
  while (num_busy_.load(std::memory_order_acquire) > 0) {
    relax();
    if (++spins > kSpins) {
      std::this_thread::yield();  // more threads than processors: let the worker finish
    }
  }
}

}  // namespace mstar
