#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/server/http/message.h"

namespace mstar {

// Who may call, and from which pages. Immutable, thread-safe.
class Access {
 public:
  // No keys: everybody may. `allowed_origins` may hold "*".
  Access(std::vector<std::string> api_keys, std::vector<std::string> allowed_origins);

  // Whether the request carries one of the keys ("Authorization: Bearer KEY"), or needs none:
  // there are no keys, or it asks for /health. Takes the same time whichever key is wrong where.
  bool is_allowed(const HttpRequest& request) const;

  bool has_keys() const { return !keys_.empty(); }

  // Header fields for the answer to a page of an allowed origin; none otherwise.
  HttpHeaders cors_headers(const HttpRequest& request) const;

  // The answer to a browser's question whether it may ask (OPTIONS); nothing when it is none.
  std::optional<HttpResponse> preflight(const HttpRequest& request) const;

 private:
  const std::vector<std::string> keys_;
  const std::vector<std::string> origins_;
};

// One key a line; blank lines and lines with # are left out. Throws Error naming the file.
std::vector<std::string> read_api_keys(const std::string& path);

// Compares in a time that depends on `given` only.
bool equals_in_constant_time(std::string_view given, std::string_view secret);

}  // namespace mstar
