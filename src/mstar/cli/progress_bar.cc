#include "mstar/cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "mstar/base/str_cat.h"

namespace mstar {

ProgressBar::ProgressBar(bool enabled) : enabled_(enabled && isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(std::string_view what, int64_t done, int64_t all, std::string_view unit) {
  if (!enabled_) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (what_ != what) {
    what_ = what;
    begin_ = now;
  } else if (now - last_ < std::chrono::milliseconds(100) && done != all) {
    return;
  }
  last_ = now;
  shown_ = true;
  constexpr int64_t kWidth = 24;
  std::string line = str_cat("\r\x1b[K", what, " ");
  if (all > 0) {
    const int64_t filled = std::clamp<int64_t>(done * kWidth / all, 0, kWidth);
    line += str_cat("[",
                    std::string(static_cast<size_t>(filled), '='),
                    std::string(static_cast<size_t>(kWidth - filled), ' '),
                    "] ");
  }
  const int64_t scale = unit == "B" ? int64_t{1} << 20 : 1;
  line += str_cat(done / scale);
  if (all > 0) {
    line += str_cat("/", all / scale);
  }
  line += unit == "B" ? std::string(" MiB") : str_cat(unit.empty() ? "" : " ", unit);
  const auto elapsed = std::chrono::duration_cast<std::chrono::seconds>(now - begin_).count();
  line += str_cat(" ", elapsed, " s");
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  if (shown_) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
    shown_ = false;
  }
}

}  // namespace mstar
