#include "mstar/base/thread_pool.h"

#include <algorithm>
#include <chrono>

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

// Longer than the gap between two ops of a forward, short enough that an idle server does not burn
// its cores. A pause takes 3 cycles on one processor and 140 on another, so a clock decides. A
// thread sanitizer build sleeps at once.
#ifdef MSTAR_TSAN
constexpr std::chrono::microseconds kSpinTime{0};
#else
constexpr std::chrono::microseconds kSpinTime{100};
#endif

// Counts time while something is awaited.
class Spinner {
 public:
  // Pauses; false once the time is over.
  bool spin() {
    relax();
    if (++spins_ % kSpinsPerLook != 0) {
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (spins_ == kSpinsPerLook) {
      end_ = now + kSpinTime;
    }
    return now < end_;
  }

 private:
  static constexpr unsigned kSpinsPerLook = 64;
  unsigned spins_ = 0;
  std::chrono::steady_clock::time_point end_;
};

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
    Spinner spinner;
    while (generation_.load(std::memory_order_acquire) == seen && spinner.spin()) {
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
  Spinner spinner;
  while (num_busy_.load(std::memory_order_acquire) > 0) {
    if (!spinner.spin()) {
      std::this_thread::yield();  // more threads than processors: let the worker finish
    }
  }
}

}  // namespace mstar
