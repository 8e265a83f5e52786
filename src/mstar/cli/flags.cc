#include "mstar/cli/flags.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[command line] ", what));
}

std::string environment_name(std::string_view flag) {
  std::string name = "MSTAR_";
  for (const char letter : flag) {
    name += letter == '-' ? '_' : static_cast<char>(std::toupper(letter));
  }
  return name;
}

template <typename T>
T parse_number(std::string_view name, const std::string& text, T min, T max) {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || !(value >= min && value <= max)) {
    fail(str_cat("--", name, ": found \"", text, "\", expected ", min, " to ", max));
  }
  return value;
}

bool is_option(const std::string& word) {
  return word.size() > 2 && word.starts_with("--");
}

}  // namespace

Flags::Flags(std::string command, std::vector<Flag> flags, bool accept_others)
    : command_(std::move(command)), flags_(std::move(flags)), accept_others_(accept_others) {}

void Flags::parse(const std::vector<std::string>& words) {
  for (size_t index = 0; index < words.size(); ++index) {
    const std::string& word = words[index];
    if (word == "--") {
      positionals_.insert(
          positionals_.end(), words.begin() + static_cast<ptrdiff_t>(index) + 1, words.end());
      break;
    }
    if (!is_option(word)) {
      positionals_.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::ranges::replace(name, '_', '-');
    const Flag* flag = find_flag(name);
    if (flag == nullptr && !accept_others_) {
      fail_unknown(name);
    }
    const bool has_next = index + 1 < words.size() && !is_option(words[index + 1]);
    std::string value;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (flag == nullptr ? has_next : !flag->value.empty()) {
      if (index + 1 == words.size()) {
        fail(str_cat("--", name, " needs a value (", flag == nullptr ? "" : flag->value, ")"));
      }
      value = words[++index];
    }
    if (flag == nullptr) {
      others_.emplace_back(std::move(name), std::move(value));
    } else {
      set(*flag, value);
    }
  }
  for (const Flag& flag : flags_) {
    const char* value = std::getenv(environment_name(flag.name).c_str());
    if (value != nullptr && !values_.contains(flag.name)) {
      set(flag, value);
    }
  }
}

void Flags::set(const Flag& flag, const std::string& value) {
  std::vector<std::string>& values = values_[flag.name];
  if (!values.empty() && !flag.repeats) {
    fail(str_cat("--", flag.name, " is given twice"));
  }
  values.push_back(flag.value.empty() && value.empty() ? "true" : value);
}

const Flag* Flags::find_flag(std::string_view name) const {
  const auto found = std::ranges::find(flags_, name, &Flag::name);
  return found == flags_.end() ? nullptr : &*found;
}

const Flag& Flags::find(std::string_view name) const {
  const Flag* flag = find_flag(name);
  MSTAR_CHECK(flag != nullptr, "undeclared flag ", name);
  return *flag;
}

void Flags::fail_unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) {
    names.push_back(flag.name);
  }
  const std::string near = nearest_name(name, names);
  fail(near.empty() ? str_cat("unknown flag --", name, "; see mstar ", command_, " --help")
                    : str_cat("unknown flag --", name, "; did you mean --", near, "?"));
}

bool Flags::has(std::string_view name) const {
  return values_.contains(find(name).name);
}

const std::string& Flags::get(std::string_view name) const {
  const Flag& flag = find(name);
  const auto found = values_.find(name);
  return found == values_.end() ? flag.fallback : found->second.back();
}

const std::vector<std::string>& Flags::get_all(std::string_view name) const {
  static const std::vector<std::string> none;
  static_cast<void>(find(name));
  const auto found = values_.find(name);
  return found == values_.end() ? none : found->second;
}

bool Flags::get_bool(std::string_view name) const {
  const std::string& text = get(name);
  if (text == "true" || text == "1") {
    return true;
  }
  if (text == "false" || text == "0" || text.empty()) {
    return false;
  }
  fail(str_cat("--", name, ": found \"", text, "\", expected true or false"));
}

int64_t Flags::get_int(std::string_view name, int64_t min, int64_t max) const {
  return parse_number<int64_t>(name, get(name), min, max);
}

double Flags::get_double(std::string_view name, double min, double max) const {
  return parse_number<double>(name, get(name), min, max);
}

std::string Flags::help() const {
  constexpr size_t kColumn = 34;
  std::string text;
  for (const Flag& flag : flags_) {
    std::string line = str_cat("  --", flag.name, flag.value.empty() ? "" : " ", flag.value);
    line.append(line.size() < kColumn ? kColumn - line.size() : 1, ' ');
    line += flag.help;
    if (!flag.fallback.empty()) {
      line += str_cat(" (", flag.fallback, ")");
    }
    text += line + "\n";
  }
  return text;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (end > 0) {
      parts.emplace_back(text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace mstar
