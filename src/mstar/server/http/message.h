#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mstar {

// Header fields in the order they came. Names compare without regard to case. Thread-compatible.
class HttpHeaders {
 public:
  using Field = std::pair<std::string, std::string>;

  HttpHeaders() = default;

  HttpHeaders(std::initializer_list<Field> fields) : fields_(fields) {}

  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }

  // The first field of that name, or null.
  const std::string* find(std::string_view name) const;

  // Its value, or "".
  std::string_view get(std::string_view name) const;

  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

// One request as it came, its target taken apart.
struct HttpRequest {
  std::string method;                                      // upper case
  std::string path;                                        // normalized, still percent-encoded
  std::vector<std::pair<std::string, std::string>> query;  // decoded
  HttpHeaders headers;
  std::string body;
  std::map<std::string, std::string, std::less<>> path_values;  // {id} of the route, decoded

  // The first query value of that name, or null.
  const std::string* find_query(std::string_view name) const;

  // "application/json" of "Application/JSON; charset=utf-8"; "" without one.
  std::string media_type() const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers{};
  std::string body{};
};

bool equals_ignoring_case(std::string_view a, std::string_view b);
std::string lower_ascii(std::string_view text);  // ASCII
std::string_view trim(std::string_view text);

// "%41+b" to "A+b", with `plus_is_space` to "A b". Nothing on a broken escape.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);

// Splits a request target into path and query. The path comes out with repeated slashes collapsed
// and without a slash at its end, so "//v1/models/" and "/v1/models" are the same resource to the
// guard and to the router. Nothing for targets that are no plain absolute path: another scheme,
// "." or ".." segments (encoded or not), control characters, backslashes, broken escapes.
bool parse_target(std::string_view target, HttpRequest& request);

// a=1&b=2, decoded. Throws Error(kInvalidArgument) on broken escapes or over `max_fields`.
std::vector<std::pair<std::string, std::string>> parse_urlencoded(std::string_view text,
                                                                  size_t max_fields = 256);

const char* reason_phrase(int status);

}  // namespace mstar
