#include "mstar/runtime/alarm.h"

namespace mstar {

Alarm::Alarm(std::chrono::milliseconds delay) : delay_(delay), thread_([this] { run(); }) {}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Alarm::add(std::function<void()> function) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(Clock::now() + delay_, std::move(function));
  }
  changed_.notify_one();
}

void Alarm::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point due = waiting_.front().first;
    if (Clock::now() < due) {
      changed_.wait_until(lock, due);
      continue;
    }
    const std::function<void()> function = std::move(waiting_.front().second);
    waiting_.pop_front();
    lock.unlock();
    function();
    lock.lock();
  }
}

}  // namespace mstar
