#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mstar {

// One option of a command: --name VALUE, --name=VALUE, or the environment's MSTAR_NAME.
struct Flag {
  std::string name;     // "max-model-len"
  std::string value{};  // what the help calls its value; empty: the flag takes none
  std::string fallback{};
  std::string help{};
  bool repeats = false;  // may be given several times
};

// A command's options as they are declared and then given. One thread.
class Flags {
 public:
  // `accept_others`: unknown options are kept for others() instead of refused.
  Flags(std::string command, std::vector<Flag> flags, bool accept_others = false);

  // Reads the words behind the command's name; the environment fills in what they leave out.
  // Throws Error(kInvalidArgument) for unknown options, naming the nearest.
  void parse(const std::vector<std::string>& words);

  bool has(std::string_view name) const;  // given, in either place
  const std::string& get(std::string_view name) const;
  const std::vector<std::string>& get_all(std::string_view name) const;
  bool get_bool(std::string_view name) const;
  int64_t get_int(std::string_view name, int64_t min, int64_t max) const;
  double get_double(std::string_view name, double min, double max) const;

  const std::vector<std::string>& positionals() const { return positionals_; }

  // Unknown options in order; a value-less one has "".
  const std::vector<std::pair<std::string, std::string>>& others() const { return others_; }

  std::string help() const;

 private:
  const Flag& find(std::string_view name) const;
  const Flag* find_flag(std::string_view name) const;
  void set(const Flag& flag, const std::string& value);
  [[noreturn]] void fail_unknown(const std::string& name) const;

  const std::string command_;
  const std::vector<Flag> flags_;
  const bool accept_others_;
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> positionals_;
  std::vector<std::pair<std::string, std::string>> others_;
};

// "a,b" to its parts, empty ones left out.
std::vector<std::string> split_list(std::string_view text);

}  // namespace mstar
