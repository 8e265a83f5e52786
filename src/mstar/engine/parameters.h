#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/base/json.h"

namespace mstar {

// One request parameter a model understands. Declared once; drives validation, /v1/models, the
// command line's help, the page's forms and the documentation.
struct RequestParameter {
  enum class Type : uint8_t { kBool, kInt, kFloat, kString, kIntList, kFloatList, kObject, kAny };

  std::string name;
  Type type = Type::kInt;
  Json fallback;              // default; null: absent unless given
  std::optional<double> min;  // numbers, and each element of a list
  std::optional<double> max;
  std::string unit;                  // "frames", "pixels", "" …
  std::vector<std::string> choices;  // strings: empty means any
  std::string help;                  // one sentence
  std::vector<std::string> aliases;  // other accepted spellings
  int max_length = 4096;             // elements of a list, bytes of a string
};

const char* to_string(RequestParameter::Type type);

// All parameters of one model. Thread-compatible: const after construction.
class ParameterTable {
 public:
  ParameterTable() = default;
  explicit ParameterTable(std::vector<RequestParameter> parameters);

  const std::vector<RequestParameter>& parameters() const { return parameters_; }

  // Null when unknown; aliases count.
  const RequestParameter* find(std::string_view name) const;

  // Checks a request's object and fills in the defaults. Null members count as absent, aliases
  // come out under their name. Unknown names, wrong types and values out of range throw
  // Error(kInvalidArgument) naming the parameter, what was found and what is allowed.
  Json resolve(const Json& given, std::string_view where = "request") const;

  // For /v1/models and documentation: [{"name", "type", "default", "min", …}].
  Json describe() const;

  // Lines for a command line's help.
  std::string help_text() const;

 private:
  std::vector<RequestParameter> parameters_;
};

// Parses a command line's text by the parameter's type ("1,2" for lists, "true"/"false", JSON
// for objects). Throws like resolve().
Json parse_parameter(const RequestParameter& parameter, std::string_view text);

}  // namespace mstar
