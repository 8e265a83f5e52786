#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace mstar {

// Messages from any thread to one. Thread-safe; wait() is the receiver's.
template <typename Message>
class Mailbox {
 public:
  void send(Message message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
  }

  // Everything that arrived, in order; waits when there is nothing. False: closed and empty.
  bool wait(std::vector<Message>& messages) {
    messages.clear();
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !messages_.empty() || closed_; });
    std::swap(messages, messages_);
    return !messages.empty();
  }

  // wait() returns false once the rest was taken.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Message> messages_;
  bool closed_ = false;
};

}  // namespace mstar
