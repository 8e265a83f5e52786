#include "mstar/server/http/host.h"

#include <algorithm>

namespace mstar {

std::optional<std::string> base_url(const HttpRequest& request) {
  const std::string_view host = request.headers.get("Host");
  constexpr size_t kLongest = 255;
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  size_t end = 0;
  if (host.starts_with('[')) {  // an IPv6 address
    end = host.find(']');
    if (end == std::string_view::npos || end == 1 ||
        host.substr(1, end - 1).find_first_not_of("0123456789abcdefABCDEF:.") !=
            std::string_view::npos) {
      return std::nullopt;
    }
    ++end;
  } else {
    const auto is_name = [&](char letter) {
      return is_digit(letter) || (letter >= 'a' && letter <= 'z') ||
             (letter >= 'A' && letter <= 'Z') || letter == '.' || letter == '-' || letter == '_';
    };
    while (end < host.size() && is_name(host[end])) {
      ++end;
    }
  }
  const std::string_view port = host.substr(end);
  const bool is_port = port.empty() || (port.size() >= 2 && port.size() <= 6 && port[0] == ':' &&
                                        std::ranges::all_of(port.substr(1), is_digit));
  if (end == 0 || host.size() > kLongest || !is_port) {
    return std::nullopt;
  }
  const bool is_secure =
      equals_ignoring_case(trim(request.headers.get("X-Forwarded-Proto")), "https");
  return std::string(is_secure ? "https://" : "http://").append(host);
}

}  // namespace mstar
