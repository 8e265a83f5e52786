#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/engine/model.h"
#include "mstar/server/http/message.h"

// What the requests of the OpenAI API have in common. Field rules: null is absent; fields that
// carry no computation are ignored (kIgnoredFields); what would change the answer and is not
// supported is an error; all others belong to the model's parameter table.
namespace mstar {

// user, metadata, store, service_tier, safety_identifier, prompt_cache_key.
bool is_ignored_field(std::string_view name);

// The body as a JSON object. Throws Error(kUnsupportedMedia) for another Content-Type and
// Error(kInvalidArgument) for a body that is no object.
Json parse_json_body(const HttpRequest& request);

// The body's "model", or "".
std::string asked_model(const Json& body);

// How the answer is to be given.
struct AnswerOptions {
  bool stream = false;
  bool include_usage = false;
  int64_t num_choices = 1;
};

// Reads the fields of one request. Every field is either taken here, or refused, or goes on to the
// model's table by parameters(). The JSON must outlive it. One thread.
class RequestReader {
 public:
  RequestReader(const Json& body, const ModelDescription& model);

  // The field, or null when absent or null. Counts as taken.
  const Json* take(std::string_view name);
  // The same as text; throws for another type.
  std::string take_string(std::string_view name, std::string_view fallback);
  bool take_bool(std::string_view name, bool fallback);
  int64_t take_int(std::string_view name, int64_t min, int64_t max, int64_t fallback);

  // Leaves the field to the model's table where it declares it; else only a value that asks for
  // nothing is fine: false, 0, "", an empty list or object, or one of `harmless`.
  void refuse(std::string_view name, const std::vector<Json>& harmless = {});

  // model, stream, stream_options, n.
  AnswerOptions take_answer_options(int64_t max_choices);

  // Whether the model's table has this field.
  bool is_parameter(std::string_view name) const;

  // What was not taken, checked against the model's table (but not yet filled with defaults).
  Json parameters();

 private:
  [[noreturn]] void fail(std::string_view name, const std::string& what) const;

  const Json& body_;
  const ModelDescription& model_;
  std::vector<std::string> taken_;
};

// One request of each choice: choice i of a seeded request has seed + i.
std::vector<ModelRequest> repeat_request(const ModelRequest& request,
                                         int64_t num_choices,
                                         std::string_view id);

// Throws Error(kUnsupported) when the model lacks the modality: "this model makes text only".
void check_output_modality(const ModelDescription& model, Modality modality);
void check_input_modality(const ModelDescription& model, Modality modality);

// A prompt as one user message.
ModelRequest prompt_request(std::string prompt, Modality output);

}  // namespace mstar
