#include "mstar/engine/parameters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

[[noreturn]] void fail(std::string_view where, std::string_view name, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", where, "] \"", name, "\": ", what));
}

std::string range_text(const RequestParameter& parameter) {
  if (parameter.min && parameter.max) {
    return str_cat(*parameter.min, " to ", *parameter.max);
  }
  return parameter.min ? str_cat(*parameter.min, " or more") : str_cat(*parameter.max, " or less");
}

void check_range(const RequestParameter& parameter, const Json& value, std::string_view where) {
  const double number = value.get_double();
  const bool inside = std::isfinite(number) && (!parameter.min || number >= *parameter.min) &&
                      (!parameter.max || number <= *parameter.max);
  if (!inside) {
    fail(where,
         parameter.name,
         str_cat("found ",
                 value.dump(),
                 ", expected ",
                 parameter.min || parameter.max ? range_text(parameter) : "a finite number"));
  }
}

void check_number(const RequestParameter& parameter,
                  const Json& value,
                  bool whole,
                  std::string_view where) {
  if (!value.is_number() ||
      (whole && !value.is_integer() && std::trunc(value.get_double()) != value.get_double())) {
    fail(where,
         parameter.name,
         str_cat("found ",
                 value.is_number() ? value.dump() : value.type_name(),
                 ", expected ",
                 whole ? "an integer" : "a number"));
  }
  check_range(parameter, value, where);
}

void check_list(const RequestParameter& parameter,
                const Json& value,
                bool whole,
                std::string_view where) {
  if (!value.is_array()) {
    fail(where, parameter.name, str_cat("found ", value.type_name(), ", expected a list"));
  }
  if (value.size() > static_cast<size_t>(parameter.max_length)) {
    fail(where,
         parameter.name,
         str_cat("found ", value.size(), " elements, at most ", parameter.max_length));
  }
  for (const Json& element : value.get_array()) {
    check_number(parameter, element, whole, where);
  }
}

void check_string(const RequestParameter& parameter, const Json& value, std::string_view where) {
  if (!value.is_string()) {
    fail(where, parameter.name, str_cat("found ", value.type_name(), ", expected a string"));
  }
  const std::string& text = value.get_string();
  if (text.size() > static_cast<size_t>(parameter.max_length)) {
    fail(where, parameter.name, str_cat("longer than ", parameter.max_length, " bytes"));
  }
  if (!parameter.choices.empty() &&
      std::ranges::find(parameter.choices, text) == parameter.choices.end()) {
    fail(where,
         parameter.name,
         str_cat("found \"", text, "\", expected one of ", str_join(parameter.choices, ", ")));
  }
}

// Accepts a single number where a list is declared.
Json checked(const RequestParameter& parameter, const Json& value, std::string_view where) {
  using Type = RequestParameter::Type;
  switch (parameter.type) {
    case Type::kBool:
      if (!value.is_bool()) {
        fail(where, parameter.name, str_cat("found ", value.type_name(), ", expected a boolean"));
      }
      return value;
    case Type::kInt:
      check_number(parameter, value, true, where);
      return value.is_integer() ? value : Json(value.get_int());
    case Type::kFloat: check_number(parameter, value, false, where); return value;
    case Type::kString: check_string(parameter, value, where); return value;
    case Type::kIntList:
    case Type::kFloatList: {
      const Json list = value.is_number() ? Json(Json::Array{value}) : value;
      check_list(parameter, list, parameter.type == Type::kIntList, where);
      return list;
    }
    case Type::kObject:
      if (!value.is_object()) {
        fail(where, parameter.name, str_cat("found ", value.type_name(), ", expected an object"));
      }
      return value;
    case Type::kAny: return value;
  }
  return value;
}

}  // namespace

const char* to_string(RequestParameter::Type type) {
  using Type = RequestParameter::Type;
  switch (type) {
    case Type::kBool: return "boolean";
    case Type::kInt: return "integer";
    case Type::kFloat: return "number";
    case Type::kString: return "string";
    case Type::kIntList: return "list of integers";
    case Type::kFloatList: return "list of numbers";
    case Type::kObject: return "object";
    case Type::kAny: return "any";
  }
  return "any";
}

ParameterTable::ParameterTable(std::vector<RequestParameter> parameters)
    : parameters_(std::move(parameters)) {}

const RequestParameter* ParameterTable::find(std::string_view name) const {
  for (const RequestParameter& parameter : parameters_) {
    if (parameter.name == name ||
        std::ranges::find(parameter.aliases, name) != parameter.aliases.end()) {
      return &parameter;
    }
  }
  return nullptr;
}

Json ParameterTable::resolve(const Json& given, std::string_view where) const {
  if (!given.is_object() && !given.is_null()) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", where, "] found ", given.type_name(), ", expected an object"));
  }
  Json out = Json::object();
  if (given.is_object()) {
    for (const auto& [name, value] : given.get_object()) {
      const RequestParameter* parameter = find(name);
      if (parameter == nullptr) {
        std::vector<std::string> names;
        for (const RequestParameter& known : parameters_) {
          names.push_back(known.name);
        }
        const std::string near = nearest_name(name, names);
        fail(where,
             name,
             near.empty()
                 ? str_cat("is not a parameter of this model; known: ", str_join(names, ", "))
                 : str_cat("is not a parameter of this model; did you mean \"", near, "\"?"));
      }
      if (value.is_null()) {
        continue;
      }
      if (out.contains(parameter->name)) {
        fail(where, parameter->name, "is given twice, under two spellings");
      }
      out.set(parameter->name, checked(*parameter, value, where));
    }
  }
  for (const RequestParameter& parameter : parameters_) {
    if (!parameter.fallback.is_null() && !out.contains(parameter.name)) {
      out.set(parameter.name, parameter.fallback);
    }
  }
  return out;
}

Json ParameterTable::describe() const {
  Json list = Json::array();
  for (const RequestParameter& parameter : parameters_) {
    Json entry = Json::object({{"name", parameter.name}, {"type", to_string(parameter.type)}});
    entry.set("default", parameter.fallback);
    if (parameter.min) {
      entry.set("min", *parameter.min);
    }
    if (parameter.max) {
      entry.set("max", *parameter.max);
    }
    if (!parameter.unit.empty()) {
      entry.set("unit", parameter.unit);
    }
    if (!parameter.choices.empty()) {
      Json choices = Json::array();
      for (const std::string& choice : parameter.choices) {
        choices.push_back(choice);
      }
      entry.set("choices", std::move(choices));
    }
    entry.set("help", parameter.help);
    list.push_back(std::move(entry));
  }
  return list;
}

std::string ParameterTable::help_text() const {
  std::string text;
  for (const RequestParameter& parameter : parameters_) {
    std::string flag = str_cat("  --", parameter.name);
    std::ranges::replace(flag, '_', '-');
    text += flag;
    text.append(flag.size() < 34 ? 34 - flag.size() : 1, ' ');
    text += parameter.help;
    if (!parameter.unit.empty()) {
      text += str_cat(" [", parameter.unit, "]");
    }
    if (parameter.min || parameter.max) {
      text += str_cat(" (", range_text(parameter), ")");
    }
    if (!parameter.fallback.is_null()) {
      text += str_cat(" default ", parameter.fallback.dump());
    }
    text += '\n';
  }
  return text;
}

Json parse_parameter(const RequestParameter& parameter, std::string_view text) {
  using Type = RequestParameter::Type;
  const std::string where = "command line";
  if (parameter.type == Type::kString) {
    return checked(parameter, Json(text), where);
  }
  if (parameter.type == Type::kBool && text.empty()) {
    return true;  // a bare --flag
  }
  const bool list = parameter.type == Type::kIntList || parameter.type == Type::kFloatList;
  const std::string json =
      list && (text.empty() || text.front() != '[') ? str_cat("[", text, "]") : std::string(text);
  Json value;
  try {
    value = Json::parse(json, where);
  } catch (const Error&) {
    fail(where,
         parameter.name,
         str_cat("found \"", text, "\", expected ", to_string(parameter.type)));
  }
  return checked(parameter, value, where);
}

}  // namespace mstar
