#include "mstar/server/http/router.h"

#include <map>
#include <optional>

namespace mstar {

namespace {

using Values = std::map<std::string, std::string, std::less<>>;

std::string_view take_segment(std::string_view& path) {
  const size_t end = std::min(path.find('/', 1), path.size());
  const std::string_view segment = path.substr(0, end);
  path.remove_prefix(end);
  return segment;
}

std::optional<Values> match(std::string_view pattern, std::string_view path) {
  Values values;
  while (!pattern.empty() && !path.empty()) {
    const std::string_view expected = take_segment(pattern);
    if (!expected.starts_with("/{")) {
      if (take_segment(path) != expected) {
        return std::nullopt;
      }
      continue;
    }
    std::string_view name = expected.substr(2, expected.size() - 3);
    std::string_view text;
    if (name.ends_with('*')) {
      name.remove_suffix(1);
      text = path;
      path = {};
    } else {
      text = take_segment(path);
    }
    text.remove_prefix(1);
    auto decoded = percent_decode(text, false);
    if (!decoded || decoded->empty()) {
      return std::nullopt;
    }
    values.emplace(name, std::move(*decoded));
  }
  return pattern.empty() && path.empty() ? std::optional(std::move(values)) : std::nullopt;
}

}  // namespace

Router::Match Router::find(HttpRequest& request) const {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  Match found;
  for (const Route& route : routes_) {
    auto values = match(route.pattern, request.path);
    if (!values) {
      continue;
    }
    if (route.method == method) {
      request.path_values = std::move(*values);
      return {.route = &route, .allow = ""};
    }
    if (!found.allow.empty()) {
      found.allow += ", ";
    }
    found.allow += route.method;
  }
  return found;
}

}  // namespace mstar
