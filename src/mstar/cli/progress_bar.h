#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace mstar {

// One line on standard error that says how far long work is. Draws only on a terminal, at most
// ten times a second. Thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(bool enabled);

  ~ProgressBar() { clear(); }

  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `all` 0: an unknown end. `unit` may be "B": then the numbers are shown as MiB.
  void show(std::string_view what, int64_t done, int64_t all, std::string_view unit = "");
  // Takes the line away.
  void clear();

 private:
  const bool enabled_;
  std::mutex mutex_;
  bool shown_ = false;
  std::string what_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace mstar
