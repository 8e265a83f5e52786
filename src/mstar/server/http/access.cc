#include "mstar/server/http/access.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/server/encoding.h"

namespace mstar {

namespace {

// The key of "Bearer KEY", or the password of "Basic base64(NAME:KEY)", which is how browsers send
// what they were asked for; "" for anything else.
std::string given_key(std::string_view header) {
  const auto behind = [&](std::string_view scheme) -> std::optional<std::string_view> {
    if (header.size() <= scheme.size() ||
        !equals_ignoring_case(header.substr(0, scheme.size()), scheme)) {
      return std::nullopt;
    }
    return trim(header.substr(scheme.size()));
  };
  if (const auto key = behind("bearer ")) {
    return std::string(*key);
  }
  if (const auto encoded = behind("basic ")) {
    try {
      const std::string pair = decode_base64_lenient(*encoded, "Authorization");
      const size_t colon = pair.find(':');
      return colon == std::string::npos ? "" : pair.substr(colon + 1);
    } catch (const Error&) {
      return "";
    }
  }
  return "";
}

}  // namespace

Access::Access(std::vector<std::string> api_keys, std::vector<std::string> allowed_origins)
    : keys_(std::move(api_keys)), origins_(std::move(allowed_origins)) {}

bool Access::is_allowed(const HttpRequest& request) const {
  if (keys_.empty() || request.path == "/health") {
    return true;
  }
  const std::string given = given_key(trim(request.headers.get("Authorization")));
  if (given.empty()) {
    return false;
  }
  bool found = false;
  for (const std::string& key : keys_) {  // all of them, so that time does not tell which
    found |= equals_in_constant_time(given, key);
  }
  return found;
}

HttpHeaders Access::cors_headers(const HttpRequest& request) const {
  const std::string* origin = request.headers.find("Origin");
  if (origin == nullptr || origins_.empty()) {
    return {};
  }
  if (std::ranges::find(origins_, "*") != origins_.end()) {
    return {{"Access-Control-Allow-Origin", "*"}};
  }
  if (std::ranges::find(origins_, *origin) == origins_.end()) {
    return {};
  }
  return {{"Access-Control-Allow-Origin", *origin}, {"Vary", "Origin"}};
}

std::optional<HttpResponse> Access::preflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" ||
      request.headers.find("Access-Control-Request-Method") == nullptr) {
    return std::nullopt;
  }
  HttpResponse response{.status = 204, .headers = cors_headers(request), .body = {}};
  if (response.headers.fields().empty()) {
    response.status = 403;
    return response;
  }
  response.headers.add("Access-Control-Allow-Methods", "GET, POST, DELETE");
  response.headers.add("Access-Control-Allow-Headers", "Authorization, Content-Type");
  response.headers.add("Access-Control-Max-Age", "600");
  return response;
}

std::vector<std::string> read_api_keys(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  const std::string text = read_text_file(path, kMostBytes);
  std::vector<std::string> keys;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trim(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.empty() && line.front() != '#') {
      keys.emplace_back(line);
    }
  }
  if (keys.empty()) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[", path, "] holds no API key"));
  }
  return keys;
}

bool equals_in_constant_time(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0U : 1U;
  for (size_t index = 0; index < given.size(); ++index) {
    const char other = secret.empty() ? '\0' : secret[index % secret.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(given[index] ^ other));
  }
  return difference == 0;
}

}  // namespace mstar
