#include "mstar/models/cosmos3/window_sessions.h"

#include <algorithm>

namespace mstar::cosmos3 {

void WindowSessions::drop(std::list<Entry>::iterator entry) {
  num_bytes_ -= entry->session->size_bytes();
  entries_.erase(entry);
}

void WindowSessions::store(const std::string& id, WindowSessionPtr session) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(entries_, id, &Entry::id);
  if (known != entries_.end()) {
    drop(known);
  }
  const int64_t size = session->size_bytes();
  if (size > max_bytes_ || max_sessions_ < 1) {
    return;
  }
  while (static_cast<int64_t>(entries_.size()) >= max_sessions_ || num_bytes_ + size > max_bytes_) {
    drop(std::prev(entries_.end()));
  }
  num_bytes_ += size;
  entries_.push_front({id, std::move(session)});
}

WindowSessionPtr WindowSessions::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(entries_, id, &Entry::id);
  if (known == entries_.end()) {
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, known);
  return entries_.front().session;
}

int64_t WindowSessions::num_sessions() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

int64_t WindowSessions::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace mstar::cosmos3
