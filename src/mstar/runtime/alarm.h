#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace mstar {

// Calls functions a fixed time after they were added, on a thread of its own. They must return soon
// and not throw. What has not come up when it is destroyed is dropped. Thread-safe.
class Alarm {
 public:
  explicit Alarm(std::chrono::milliseconds delay);
  ~Alarm();

  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  void add(std::function<void()> function);

  std::chrono::milliseconds delay() const { return delay_; }

 private:
  using Clock = std::chrono::steady_clock;

  void run();

  const std::chrono::milliseconds delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<std::pair<Clock::time_point, std::function<void()>>> waiting_;  // first due first
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mstar
