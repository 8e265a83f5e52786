#pragma once

#include <string>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/server/http/message.h"

namespace mstar {

// An error that names the request field and a machine-readable code, as the OpenAI API does.
class ApiError : public Error {
 public:
  ApiError(ErrorCode code, const std::string& message, std::string param, std::string api_code = "")
      : Error(code, message), param_(std::move(param)), api_code_(std::move(api_code)) {}

  const std::string& param() const { return param_; }

  const std::string& api_code() const { return api_code_; }

 private:
  std::string param_;
  std::string api_code_;
};

int http_status(ErrorCode code);

// {"error": {"message", "type", "param", "code"}}. The parameter is the error's own, or the one
// that the message of a parameter table quotes: [request] "seed": ….
Json error_json(const Error& error);

// The same as a response with its status; 429 and 503 carry Retry-After.
HttpResponse error_response(const Error& error);

HttpResponse json_response(const Json& body, int status = 200);

}  // namespace mstar
