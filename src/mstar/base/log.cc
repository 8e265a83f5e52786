#include "mstar/base/log.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr std::array<const char*, 5> kLevels = {"debug", "info", "warning", "error", "off"};
constexpr std::array<const char*, 2> kFormats = {"text", "json"};

std::atomic<LogLevel> log_level = LogLevel::kInfo;
std::atomic<LogFormat> log_format = LogFormat::kText;

template <typename Names>
size_t find_name(const Names& names, std::string_view word, std::string_view where) {
  for (size_t index = 0; index < names.size(); ++index) {
    if (word == names[index]) {
      return index;
    }
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      str_cat("[", where, "] found \"", word, "\", expected one of ", str_join(names, ", ")));
}

std::string time_text(int64_t milliseconds) {
  const std::time_t seconds = milliseconds / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + size, sizeof(text) - size, ".%03dZ", static_cast<int>(milliseconds % 1000));
  return text;
}

}  // namespace

LogLevel parse_log_level(std::string_view word, std::string_view where) {
  return static_cast<LogLevel>(find_name(kLevels, word, where));
}

LogFormat parse_log_format(std::string_view word, std::string_view where) {
  return static_cast<LogFormat>(find_name(kFormats, word, where));
}

void set_log(LogLevel level, LogFormat format) {
  log_level = level;
  log_format = format;
}

bool log_enabled(LogLevel level) {
  return level >= log_level.load(std::memory_order_relaxed) && level != LogLevel::kOff;
}

std::string format_log_line(LogLevel level,
                            LogFormat format,
                            int64_t milliseconds,
                            std::string_view message,
                            LogFields fields) {
  const std::string time = time_text(milliseconds);
  const char* name = kLevels[static_cast<size_t>(level)];
  if (format == LogFormat::kJson) {
    Json line = Json::object({{"time", time}, {"level", name}, {"message", message}});
    for (const auto& [key, value] : fields) {
      line.set(key, value);
    }
    return line.dump() + "\n";
  }
  // What clients send stays in quotes, so that nobody forges a line.
  std::string line = str_cat(time, " ", name, " ", message);
  for (const auto& [key, value] : fields) {
    line += str_cat(" ", key, "=", value.dump());
  }
  return line + "\n";
}

void log_line(LogLevel level, std::string_view message, LogFields fields) {
  if (!log_enabled(level)) {
    return;
  }
  const int64_t now = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const std::string line = format_log_line(level, log_format, now, message, fields);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call: lines do not mix
}

}  // namespace mstar
