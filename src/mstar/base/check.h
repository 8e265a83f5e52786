#pragma once

#include <string>

#include "mstar/base/str_cat.h"

namespace mstar::internal {

// Prints the place, the condition and `message`, then aborts.
[[noreturn]] void check_failed(const char* file,
                               int line,
                               const char* condition,
                               const std::string& message);

}  // namespace mstar::internal

// For bugs in our own code only. A wrong request, file or configuration throws Error instead.
// Further arguments are printed: MSTAR_CHECK(n <= size, "n=", n, " size=", size).
#define MSTAR_CHECK(condition, ...)                                       \
  do {                                                                    \
    if (!(condition)) [[unlikely]] {                                      \
      ::mstar::internal::check_failed(                                    \
          __FILE__, __LINE__, #condition, ::mstar::str_cat(__VA_ARGS__)); \
    }                                                                     \
  } while (false)

// The same on hot paths: only where MSTAR_DCHECK is on (dev and sanitizer presets).
#ifdef MSTAR_DCHECK_ENABLED
#define MSTAR_DCHECK(condition, ...) MSTAR_CHECK(condition, __VA_ARGS__)
#else
#define MSTAR_DCHECK(condition, ...) \
  do {                               \
  } while (false && (condition))
#endif
