#pragma once

#include <string_view>

#include "mstar/text/jinja/interpreter.h"

namespace mstar::jinja {

// Takes the arguments of a filter, test or method by place or name and refuses the rest:
//   ArgumentReader read(arguments, "join");
//   const Value separator = read.get("d", Value(std::string()));
//   read.finish();
// One thread.
class ArgumentReader {
 public:
  ArgumentReader(Arguments& arguments, std::string_view where)
      : arguments_(arguments), where_(where) {}

  // The next argument, given by place or by this name; `fallback` when absent.
  Value get(std::string_view name, Value fallback);

  // The same, and absence is an error.
  Value get(std::string_view name);

  // The next argument as text, integer or truth.
  MarkedText get_text(std::string_view name);
  MarkedText get_text(std::string_view name, std::string_view fallback);
  int64_t get_int(std::string_view name, int64_t fallback);
  bool get_bool(std::string_view name, bool fallback);

  // Throws Error when arguments are left.
  void finish() const;

 private:
  const Value* find(std::string_view name);

  Arguments& arguments_;
  std::string_view where_;
  size_t num_positional_ = 0;
  size_t num_named_ = 0;
};

}  // namespace mstar::jinja
