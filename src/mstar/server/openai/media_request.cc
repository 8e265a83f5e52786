#include "mstar/server/openai/media_request.h"

#include <algorithm>
#include <charconv>

#include "mstar/base/str_cat.h"
#include "mstar/server/api_error.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/form.h"
#include "mstar/server/openai/request.h"

namespace mstar {

namespace {

[[noreturn]] void fail_field(std::string_view name, const std::string& what) {
  throw ApiError(
      ErrorCode::kInvalidArgument, str_cat("[request] \"", name, "\": ", what), std::string(name));
}

bool is_media_field(std::string_view name, const MediaFields& fields) {
  if (name.ends_with("[]")) {
    name.remove_suffix(2);
  }
  return std::ranges::find(fields.media, name) != fields.media.end();
}

Modality expected_modality(std::string_view name) {
  if (name.starts_with("video")) {
    return Modality::kVideo;
  }
  return name.starts_with("audio") || name == "file" ? Modality::kAudio : Modality::kImage;
}

// A form's text as the JSON value that the field has elsewhere.
Json form_value(const FormField& field, const ModelDescription& model) {
  // These routes have a response_format of their own: a word.
  const RequestParameter* parameter = model.parameters.find(field.name);
  if (parameter != nullptr && field.name != "response_format") {
    return parse_parameter(*parameter, field.data);
  }
  if (field.name == "n" || field.name == "output_compression") {
    int64_t number = 0;
    const char* end = field.data.data() + field.data.size();
    const auto result = std::from_chars(field.data.data(), end, number);
    if (result.ec != std::errc() || result.ptr != end) {
      fail_field(field.name, str_cat("found \"", field.data, "\", expected an integer"));
    }
    return number;
  }
  if (field.name == "stream") {
    return lower_ascii(field.data) == "true";
  }
  return field.data;
}

// A URI, bare base64, {"url": …} or {"image_url": …}, or a list of them.
void add_json_media(std::string_view name,
                    const Json& value,
                    const MediaAccess& access,
                    ModelRequest& out) {
  if (value.is_array()) {
    for (const Json& one : value.get_array()) {
      add_json_media(name, one, access, out);
    }
    return;
  }
  const Json* uri = &value;
  if (value.is_object()) {
    uri = value.contains("url") ? value.find("url") : value.find("image_url");
  }
  if (uri != nullptr && value.is_object() && !uri->is_string()) {
    uri = nullptr;
  }
  if (uri == nullptr || !uri->is_string()) {
    fail_field(name, "expected a data: URI");
  }
  out.media.push_back(access.get_or_base64(uri->get_string(), expected_modality(name), name));
}

// The request's fields as one object; media go to `out`.
Json read_fields(const HttpRequest& http,
                 const ModelDescription& model,
                 const MediaAccess& access,
                 const MediaFields& fields,
                 ModelRequest& out) {
  Json body = Json::object();
  const std::string type = http.media_type();
  if (type == "multipart/form-data" || type == "application/x-www-form-urlencoded") {
    for (FormField& field : parse_form(http)) {
      if (is_media_field(field.name, fields) && field.is_file) {
        const std::string where = field.name;
        out.media.push_back(media_from_upload(std::move(field.data), field.file_name, where));
      } else if (is_media_field(field.name, fields)) {
        add_json_media(field.name, Json(field.data), access, out);
      } else if (body.contains(field.name)) {
        fail_field(field.name, "is given twice");
      } else {
        body.set(field.name, form_value(field, model));
      }
    }
    return body;
  }
  const Json document = parse_json_body(http);
  for (const auto& [name, value] : document.get_object()) {
    if (!is_media_field(name, fields)) {
      body.set(name, value);
    } else if (!value.is_null()) {
      add_json_media(name, value, access, out);
    }
  }
  return body;
}

// "WxH" as the model's width and height.
void spread_size(const ModelDescription& model, Json& body) {
  const Json* size = body.find("size");
  if (size == nullptr || size->is_null() || model.parameters.find("size") != nullptr) {
    return;
  }
  if (model.parameters.find("width") == nullptr || model.parameters.find("height") == nullptr) {
    return;  // the table will say that it knows no size
  }
  Json width;
  Json height;
  if (!size->is_string()) {
    fail_field("size", str_cat("found ", size->type_name(), ", expected \"WxH\""));
  }
  const std::string& text = size->get_string();
  if (text != "auto") {
    const size_t cross = text.find('x');
    const auto number = [&](std::string_view digits) {
      int64_t value = 0;
      const char* end = digits.data() + digits.size();
      const auto result = std::from_chars(digits.data(), end, value);
      if (result.ec != std::errc() || result.ptr != end || value <= 0) {
        fail_field("size", str_cat("found \"", text, "\", expected \"WxH\" such as 640x480"));
      }
      return value;
    };
    width = number(std::string_view(text).substr(0, cross));
    height = number(cross == std::string::npos ? std::string_view()
                                               : std::string_view(text).substr(cross + 1));
  }
  Json rest = Json::object();
  for (const auto& [name, value] : body.get_object()) {
    if (name != "size") {
      rest.set(name, value);
    }
  }
  if (!width.is_null()) {
    if (rest.contains("width") || rest.contains("height")) {
      fail_field("size", "is given twice, as width and height too");
    }
    rest.set("width", width);
    rest.set("height", height);
  }
  body = std::move(rest);
}

}  // namespace

MediaRequest parse_media_request(const HttpRequest& http,
                                 const ModelDescription& model,
                                 const MediaAccess& access,
                                 const MediaFields& fields) {
  MediaRequest out;
  check_output_modality(model, fields.output);
  Json body = read_fields(http, model, access, fields, out.request);
  for (const MediaItem& media : out.request.media) {
    check_input_modality(model, media.modality);
  }
  spread_size(model, body);
  RequestReader reader(body, model);
  out.model = reader.take_string("model", "");
  out.num_choices = reader.take_int("n", 1, fields.max_choices, 1);
  out.stream = reader.take_bool("stream", false);
  out.response_format = reader.take_string("response_format", "");
  ChatMessage message;
  message.role = "user";
  for (size_t index = 0; index < out.request.media.size(); ++index) {
    message.content.push_back({.modality = out.request.media[index].modality,
                               .text = "",
                               .media = static_cast<int>(index)});
  }
  const std::string prompt =
      reader.is_parameter(fields.prompt) ? "" : reader.take_string(fields.prompt, "");
  if (prompt.empty() && fields.needs_prompt) {
    fail_field(fields.prompt, "is missing");
  }
  if (!prompt.empty()) {
    message.content.push_back({.modality = Modality::kText, .text = prompt, .media = -1});
  }
  for (const char* name : {"quality", "style", "background", "moderation"}) {
    reader.refuse(name, {Json("auto"), Json("standard")});
  }
  reader.refuse("timestamp_granularities[]", {Json("segment")});
  out.output_format = lower_ascii(reader.take_string("output_format", ""));
  out.output_compression = reader.take_int("output_compression", 0, 100, 100);
  out.request.messages.push_back(std::move(message));
  out.request.output_modalities = {fields.output};
  out.request.parameters = reader.parameters();
  return out;
}

}  // namespace mstar
