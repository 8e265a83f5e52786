#include "mstar/server/openai/request.h"

#include <algorithm>
#include <array>
#include <limits>

#include "mstar/base/str_cat.h"
#include "mstar/server/api_error.h"

namespace mstar {

namespace {

constexpr std::array<std::string_view, 6> kIgnoredFields =
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"};

constexpr int kMaxJsonDepth = 32;

bool asks_for_nothing(const Json& value) {
  if (value.is_bool()) {
    return !value.get_bool();
  }
  if (value.is_number()) {
    return value.get_double() == 0.0;
  }
  return value.is_string() ? value.get_string().empty() : value.size() == 0;
}

std::string modality_list(const std::vector<Modality>& modalities) {
  std::vector<std::string> words;
  for (const Modality modality : modalities) {
    words.emplace_back(graph::to_string(modality));
  }
  return str_join(words, ", ");
}

}  // namespace

bool is_ignored_field(std::string_view name) {
  return std::ranges::find(kIgnoredFields, name) != kIgnoredFields.end();
}

Json parse_json_body(const HttpRequest& request) {
  const std::string type = request.media_type();
  if (!type.empty() && type != "application/json") {
    throw Error(ErrorCode::kUnsupportedMedia,
                str_cat("[request] found Content-Type \"", type, "\", expected application/json"));
  }
  Json body = Json::parse(request.body, "request", kMaxJsonDepth);
  if (!body.is_object()) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[request] found ", body.type_name(), ", expected an object"));
  }
  return body;
}

std::string asked_model(const Json& body) {
  const Json* model = body.find("model");
  return model != nullptr && model->is_string() ? model->get_string() : "";
}

RequestReader::RequestReader(const Json& body, const ModelDescription& model)
    : body_(body), model_(model) {}

void RequestReader::fail(std::string_view name, const std::string& what) const {
  throw ApiError(
      ErrorCode::kInvalidArgument, str_cat("[request] \"", name, "\": ", what), std::string(name));
}

const Json* RequestReader::take(std::string_view name) {
  taken_.emplace_back(name);
  const Json* value = body_.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string RequestReader::take_string(std::string_view name, std::string_view fallback) {
  const Json* value = take(name);
  if (value == nullptr) {
    return std::string(fallback);
  }
  if (!value->is_string()) {
    fail(name, str_cat("found ", value->type_name(), ", expected a string"));
  }
  return value->get_string();
}

bool RequestReader::take_bool(std::string_view name, bool fallback) {
  const Json* value = take(name);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_bool()) {
    fail(name, str_cat("found ", value->type_name(), ", expected a boolean"));
  }
  return value->get_bool();
}

int64_t RequestReader::take_int(std::string_view name, int64_t min, int64_t max, int64_t fallback) {
  const Json* value = take(name);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_integer()) {
    fail(name, str_cat("found ", value->type_name(), ", expected an integer"));
  }
  const double number = value->get_double();
  if (number < static_cast<double>(min) || number > static_cast<double>(max)) {
    fail(name, str_cat("found ", value->dump(), ", expected ", min, " to ", max));
  }
  return value->get_int();
}

void RequestReader::refuse(std::string_view name, const std::vector<Json>& harmless) {
  if (is_parameter(name)) {
    return;
  }
  const Json* value = take(name);
  if (value == nullptr || asks_for_nothing(*value) ||
      std::ranges::find(harmless, *value) != harmless.end()) {
    return;
  }
  throw ApiError(ErrorCode::kUnsupported,
                 str_cat("[request] \"", name, "\" is not supported by this model"),
                 std::string(name),
                 "unsupported_parameter");
}

AnswerOptions RequestReader::take_answer_options(int64_t max_choices) {
  AnswerOptions options;
  static_cast<void>(take_string("model", ""));
  options.stream = take_bool("stream", false);
  options.num_choices = take_int("n", 1, max_choices, 1);
  if (const Json* stream_options = take("stream_options")) {
    if (!stream_options->is_object()) {
      fail("stream_options",
           str_cat("found ", stream_options->type_name(), ", expected an object"));
    }
    for (const auto& [name, value] : stream_options->get_object()) {
      if (name == "include_usage" && (value.is_bool() || value.is_null())) {
        options.include_usage = value.is_bool() && value.get_bool();
      } else if (name != "include_obfuscation") {
        fail("stream_options", str_cat("found \"", name, "\", expected include_usage"));
      }
    }
  }
  return options;
}

bool RequestReader::is_parameter(std::string_view name) const {
  return model_.parameters.find(name) != nullptr;
}

Json RequestReader::parameters() {
  Json rest = Json::object();
  for (const auto& [name, value] : body_.get_object()) {
    if (value.is_null() || is_ignored_field(name) ||
        std::ranges::find(taken_, name) != taken_.end()) {
      continue;
    }
    if (name == "max_completion_tokens" && body_.contains("max_tokens") &&
        body_.at("max_tokens") == value) {
      continue;  // clients that do not know which one to send send both
    }
    rest.set(name, value);
  }
  static_cast<void>(model_.parameters.resolve(rest));  // only to be told what is wrong
  return rest;
}

std::vector<ModelRequest> repeat_request(const ModelRequest& request,
                                         int64_t num_choices,
                                         std::string_view id) {
  std::vector<ModelRequest> requests(static_cast<size_t>(num_choices), request);
  const Json* seed = request.parameters.find("seed");
  for (size_t index = 0; index < requests.size(); ++index) {
    requests[index].request_id = index == 0 ? std::string(id) : str_cat(id, "-", index);
    if (seed != nullptr && index > 0) {
      const uint64_t first = seed->get_uint();
      constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      requests[index].parameters.set("seed", (first + index) & kMost);
    }
  }
  return requests;
}

void check_output_modality(const ModelDescription& model, Modality modality) {
  if (std::ranges::find(model.output_modalities, modality) == model.output_modalities.end()) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[request] the model \"",
                        model.name,
                        "\" does not make ",
                        graph::to_string(modality),
                        "; it makes ",
                        modality_list(model.output_modalities)));
  }
}

void check_input_modality(const ModelDescription& model, Modality modality) {
  if (std::ranges::find(model.input_modalities, modality) == model.input_modalities.end()) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[request] the model \"",
                        model.name,
                        "\" does not read ",
                        graph::to_string(modality),
                        "; it reads ",
                        modality_list(model.input_modalities)));
  }
}

ModelRequest prompt_request(std::string prompt, Modality output) {
  ModelRequest request;
  ChatMessage message;
  message.role = "user";
  message.content.push_back({.modality = Modality::kText, .text = std::move(prompt), .media = -1});
  request.messages.push_back(std::move(message));
  request.output_modalities = {output};
  return request;
}

}  // namespace mstar
