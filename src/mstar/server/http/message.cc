#include "mstar/server/http/message.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

int hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') {
    return letter - '0';
  }
  const char small = lower(letter);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

bool is_plain(std::string_view text) {
  return std::ranges::none_of(text, [](char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return byte < 0x20 || byte == 0x7F || letter == '\\';
  });
}

// Appends the path's segments to `out`; false for one that names no plain resource.
bool append_segments(std::string_view path, std::string& out) {
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view segment = path.substr(0, end);
    path.remove_prefix(end);
    if (segment.empty()) {
      continue;
    }
    const auto decoded = percent_decode(segment, false);
    if (!decoded || !is_plain(*decoded) || *decoded == "." || *decoded == "..") {
      return false;
    }
    out += '/';
    out += segment;
  }
  return true;
}

}  // namespace

const std::string* HttpHeaders::find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (equals_ignoring_case(field.first, name)) {
      return &field.second;
    }
  }
  return nullptr;
}

std::string_view HttpHeaders::get(std::string_view name) const {
  const std::string* value = find(name);
  return value != nullptr ? std::string_view(*value) : std::string_view();
}

const std::string* HttpRequest::find_query(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

std::string HttpRequest::media_type() const {
  const std::string_view value = headers.get("Content-Type");
  return lower_ascii(trim(value.substr(0, value.find(';'))));
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t index = 0; index < text.size(); ++index) {
    const char letter = text[index];
    if (letter == '+' && plus_is_space) {
      out += ' ';
    } else if (letter != '%') {
      out += letter;
    } else {
      if (index + 2 >= text.size()) {
        return std::nullopt;
      }
      const int high = hex_digit(text[index + 1]);
      const int low = hex_digit(text[index + 2]);
      if (high < 0 || low < 0) {
        return std::nullopt;
      }
      out += static_cast<char>(high * 16 + low);
      index += 2;
    }
  }
  return out;
}

bool parse_target(std::string_view target, HttpRequest& request) {
  if (target.empty() || target.front() != '/' || !is_plain(target)) {
    return false;
  }
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  request.path.clear();
  if (!append_segments(target.substr(0, question), request.path)) {
    return false;
  }
  if (request.path.empty()) {
    request.path = "/";
  }
  if (question != std::string_view::npos) {
    try {
      request.query = parse_urlencoded(target.substr(question + 1));
    } catch (const Error&) {
      return false;
    }
  }
  return true;
}

std::vector<std::pair<std::string, std::string>> parse_urlencoded(std::string_view text,
                                                                  size_t max_fields) {
  std::vector<std::pair<std::string, std::string>> fields;
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view field = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (field.empty()) {
      continue;
    }
    if (fields.size() == max_fields) {
      throw Error(ErrorCode::kInvalidArgument, str_cat("[form] more than ", max_fields, " fields"));
    }
    const size_t equals = field.find('=');
    auto key = percent_decode(field.substr(0, equals), true);
    auto value = percent_decode(
        equals == std::string_view::npos ? std::string_view() : field.substr(equals + 1), true);
    if (!key || !value) {
      throw Error(ErrorCode::kInvalidArgument, "[form] a % without two hexadecimal digits");
    }
    fields.emplace_back(std::move(*key), std::move(*value));
  }
  return fields;
}

const char* reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Payload Too Large";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "Unknown";
  }
}

}  // namespace mstar
