#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace mstar {

// The one pool that everything computing shares. A job is `num_tasks` independent calls of one
// function; the caller takes part and returns when all are done. Tasks are handed out one at a
// time, so uneven ones balance; a task's result must not depend on who runs it.
//
// Workers spin for a while after a job (a step is a chain of short jobs: waking a sleeping
// thread costs 20-50 us, a spinning one 0.2 us), then sleep.
//
// Thread-safe: a caller that finds the pool busy runs its tasks itself, and so does a task that
// starts a job. Tasks must not throw.
class ThreadPool {
 public:
  // `num_threads` counts the caller: 1 starts no thread. 0 takes the machine's processors.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls function(argument, task) for every task in [0, num_tasks).
  void run(int num_tasks, void (*function)(void* argument, int task), void* argument);

  // The same for anything callable with a task number. Allocates nothing.
  template <typename Function>
  void parallel_for(int num_tasks, Function&& function) {
    using F = std::remove_reference_t<Function>;
    run(
        num_tasks,
        [](void* argument, int task) { (*static_cast<F*>(argument))(task); },
        const_cast<void*>(static_cast<const void*>(&function)));
  }

 private:
  void work();
  void take_tasks();

  struct Job {
    void (*function)(void*, int) = nullptr;
    void* argument = nullptr;
    int num_tasks = 0;
  };

  std::mutex owner_;  // held by the caller whose job is running
  Job job_;           // written by that caller before generation_ moves
  alignas(64) std::atomic<uint32_t> generation_{0};  // one more per job; workers watch it
  alignas(64) std::atomic<int> next_task_{0};
  alignas(64) std::atomic<int> num_busy_{0};  // workers that have not finished with this job
  std::atomic<int> num_sleeping_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace mstar
