#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mstar {

// A few threads for work that may take long and is not part of a step: reading prompts and media,
// encoding pictures and clips. Thread-safe. Tasks must not throw; those still waiting when it is
// destroyed are run first.
class WorkQueue {
 public:
  explicit WorkQueue(int num_threads);
  ~WorkQueue();

  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mstar
