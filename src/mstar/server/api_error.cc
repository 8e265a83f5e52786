#include "mstar/server/api_error.h"

#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

const char* error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 503: return "service_unavailable_error";
    default: return "invalid_request_error";
  }
}

// `name` of a message that begins [where] "name": or "".
std::string quoted_parameter(std::string_view message) {
  constexpr std::string_view kBegin = "] \"";
  const size_t begin = message.find(kBegin);
  if (!message.starts_with('[') || begin == std::string_view::npos) {
    return "";
  }
  message.remove_prefix(begin + kBegin.size());
  const size_t end = message.find("\":");
  return end == std::string_view::npos || message.find('"') != end
             ? ""
             : std::string(message.substr(0, end));
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return 400;
    case ErrorCode::kUnauthenticated: return 401;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kTooLarge: return 413;
    case ErrorCode::kUnsupportedMedia: return 415;
    case ErrorCode::kResourceExhausted: return 429;
    case ErrorCode::kCancelled: return 499;
    case ErrorCode::kInternal: return 500;
    case ErrorCode::kUnsupported: return 400;  // the client asks what this model cannot do
    case ErrorCode::kUnavailable: return 503;
  }
  return 500;
}

Json error_json(const Error& error) {
  const auto* api = dynamic_cast<const ApiError*>(&error);
  const std::string param = api != nullptr ? api->param() : quoted_parameter(error.what());
  const std::string code =
      api != nullptr && !api->api_code().empty() ? api->api_code() : to_string(error.code());
  return Json::object({{"error",
                        Json::object({{"message", error.what()},
                                      {"type", error_type(http_status(error.code()))},
                                      {"param", param.empty() ? Json(nullptr) : Json(param)},
                                      {"code", code}})}});
}

HttpResponse error_response(const Error& error) {
  HttpResponse response = json_response(error_json(error), http_status(error.code()));
  if (response.status == 429 || response.status == 503) {
    response.headers.add("Retry-After", "1");
  } else if (response.status == 401) {
    response.headers.add("WWW-Authenticate", "Bearer");
  }
  return response;
}

HttpResponse json_response(const Json& body, int status) {
  return {.status = status, .headers = {{"Content-Type", "application/json"}}, .body = body.dump()};
}

}  // namespace mstar
