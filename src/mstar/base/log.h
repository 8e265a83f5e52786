#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "mstar/base/json.h"

// Lines about what the program does, on standard error. Thread-safe.
namespace mstar {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat : uint8_t { kText, kJson };

// "debug", "info", "warning", "error" or "off"; throws Error(kInvalidArgument) naming them.
LogLevel parse_log_level(std::string_view word, std::string_view where);
// "text" or "json".
LogFormat parse_log_format(std::string_view word, std::string_view where);

// For the whole process; at first kInfo and kText.
void set_log(LogLevel level, LogFormat format);

// Whether lines of this level are written: ask before making an expensive one.
bool log_enabled(LogLevel level);

using LogFields = std::initializer_list<std::pair<std::string_view, Json>>;

// One line: time, level, what happened, and facts about it. As text
//   2026-05-01T10:00:00.123Z info served method="GET" status=200
// and as JSON {"time", "level", "message", and the fields}.
void log_line(LogLevel level, std::string_view message, LogFields fields = {});

// The same line without writing it; `milliseconds` since 1970 UTC. For tests.
std::string format_log_line(LogLevel level,
                            LogFormat format,
                            int64_t milliseconds,
                            std::string_view message,
                            LogFields fields);

}  // namespace mstar
