#include "mstar/text/jinja/call_arguments.h"

#include "mstar/base/str_cat.h"

namespace mstar::jinja {

const Value* ArgumentReader::find(std::string_view name) {
  if (num_positional_ < arguments_.positional.size()) {
    return &arguments_.positional[num_positional_++];
  }
  for (const auto& [given, value] : arguments_.named) {
    if (given == name) {
      ++num_named_;
      return &value;
    }
  }
  return nullptr;
}

Value ArgumentReader::get(std::string_view name, Value fallback) {
  const Value* found = find(name);
  return found == nullptr ? std::move(fallback) : *found;
}

Value ArgumentReader::get(std::string_view name) {
  const Value* found = find(name);
  if (found == nullptr) {
    fail(str_cat(where_, " needs the argument '", name, "'"));
  }
  return *found;
}

MarkedText ArgumentReader::get_text(std::string_view name) {
  const Value value = get(name);
  if (!value.is_string()) {
    fail(str_cat(where_, ": argument '", name, "' is ", value.type_name(), ", expected str"));
  }
  return value.text();
}

MarkedText ArgumentReader::get_text(std::string_view name, std::string_view fallback) {
  const Value* found = find(name);
  return found == nullptr ? MarkedText{std::string(fallback), {}} : to_text(*found);
}

int64_t ArgumentReader::get_int(std::string_view name, int64_t fallback) {
  const Value value = get(name, Value(fallback));
  if (!value.is_int() && !value.is_bool()) {
    fail(str_cat(where_, ": argument '", name, "' is ", value.type_name(), ", expected int"));
  }
  return value.as_int();
}

bool ArgumentReader::get_bool(std::string_view name, bool fallback) {
  return get(name, Value(fallback)).as_bool();
}

void ArgumentReader::finish() const {
  if (num_positional_ < arguments_.positional.size() || num_named_ < arguments_.named.size()) {
    fail(str_cat(where_, " got more arguments than it takes"));
  }
}

}  // namespace mstar::jinja
