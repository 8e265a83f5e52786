#include "mstar/models/common/answer_format.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

class GuidedRules final : public TokenRules {
 public:
  explicit GuidedRules(std::shared_ptr<const TokenGrammar> grammar) : guide_(std::move(grammar)) {}

  void reset() override { guide_.reset(); }

  void fill_mask(std::span<uint32_t> mask) override { guide_.fill_mask(mask); }

  void accept(int32_t token) override { guide_.accept(token); }

 private:
  TokenGuide guide_;
};

class GuidedSource final : public TokenRulesSource {
 public:
  explicit GuidedSource(std::shared_ptr<const TokenGrammar> grammar)
      : grammar_(std::move(grammar)) {}

  std::unique_ptr<TokenRules> start() const override {
    return std::make_unique<GuidedRules>(grammar_);
  }

 private:
  std::shared_ptr<const TokenGrammar> grammar_;
};

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[request] \"response_format\": ", what));
}

// [path] what -> [request] "response_format": path: what
[[noreturn]] void rethrow(const Error& error) {
  const std::string_view message = error.what();
  const size_t end = message.find("] ");
  if (message.empty() || message[0] != '[' || end == std::string_view::npos) {
    throw Error(error.code(), str_cat("[request] \"response_format\": ", message));
  }
  throw Error(error.code(),
              str_cat("[request] \"response_format\": ",
                      message.substr(1, end - 1),
                      ": ",
                      message.substr(end + 2)));
}

bool is_name(const Json& value) {
  if (!value.is_string() || value.get_string().empty() || value.get_string().size() > 64) {
    return false;
  }
  return std::ranges::all_of(value.get_string(), [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '_' || letter == '-';
  });
}

const Json& schema_of(const Json& format) {
  const Json* wrapped = format.find("json_schema");
  if (wrapped == nullptr || !wrapped->is_object()) {
    fail("json_schema: expected {\"name\", \"schema\"}");
  }
  const Json* schema = nullptr;
  bool is_named = false;
  for (const auto& [name, value] : wrapped->get_object()) {
    if (name == "schema") {
      schema = value.is_null() ? nullptr : &value;
    } else if (name == "name") {
      is_named = true;
      if (!is_name(value)) {
        fail("json_schema.name: expected up to 64 letters, digits, '_' and '-'");
      }
    } else if (name == "strict") {
      if (!value.is_bool() && !value.is_null()) {
        fail(str_cat("json_schema.strict: found ", value.type_name(), ", expected a boolean"));
      }
    } else if (name == "description") {
      if (!value.is_string() && !value.is_null()) {
        fail(str_cat("json_schema.description: found ", value.type_name(), ", expected a string"));
      }
    } else {
      fail(str_cat(
          "json_schema: found \"", name, "\", expected name, schema, strict or description"));
    }
  }
  if (!is_named) {
    fail("json_schema.name: missing");
  }
  if (schema == nullptr) {
    fail("json_schema.schema: missing");
  }
  return *schema;
}

}  // namespace

AnswerRules answer_rules(const Json& parameters, TokenGrammars& grammars) {
  const Json* format = parameters.find("response_format");
  if (format == nullptr) {
    return nullptr;
  }
  const Json* type = format->find("type");
  if (type == nullptr || !type->is_string()) {
    fail("type: missing, expected text, json_object or json_schema");
  }
  const std::string& word = type->get_string();
  const bool has_schema = word == "json_schema";
  for (const auto& [name, value] : format->get_object()) {
    if (name != "type" && !(has_schema && name == "json_schema") && !value.is_null()) {
      fail(str_cat("found \"", name, "\" beside type \"", word, "\""));
    }
  }
  if (word == "text") {
    return nullptr;
  }
  if (word != "json_object" && !has_schema) {
    fail(str_cat("type: found \"", word, "\", expected text, json_object or json_schema"));
  }
  if (const Json* ignore = parameters.find("ignore_eos"); ignore != nullptr && ignore->get_bool()) {
    fail("a document ends; leave out ignore_eos");
  }
  static const Json kAnyObject = Json::object({{"type", "object"}});
  const Json& schema = has_schema ? schema_of(*format) : kAnyObject;
  try {
    return std::make_shared<const GuidedSource>(grammars.get(schema, "json_schema.schema"));
  } catch (const Error& error) {
    rethrow(error);
  }
}

}  // namespace mstar
