#include "mstar/server/http/form.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

[[noreturn]] void fail(std::string_view what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[form] ", what));
}

// Reads one parameter value at the start of `text`, quoted or not, and removes it.
std::string take_value(std::string_view& text) {
  std::string value;
  if (text.empty() || text.front() != '"') {
    const size_t end = std::min(text.find(';'), text.size());
    value = std::string(trim(text.substr(0, end)));
    text.remove_prefix(end);
    return value;
  }
  size_t index = 1;
  for (; index < text.size() && text[index] != '"'; ++index) {
    // Browsers send a backslash only before a quote; elsewhere it is one of a file name.
    if (text[index] == '\\' && index + 1 < text.size() && text[index + 1] == '"') {
      ++index;
    }
    value += text[index];
  }
  text.remove_prefix(std::min(index + 1, text.size()));
  return value;
}

void read_part_header(std::string_view header, FormField& field) {
  bool has_disposition = false;
  while (!header.empty()) {
    const size_t end = std::min(header.find("\r\n"), header.size());
    const std::string_view line = header.substr(0, end);
    header.remove_prefix(std::min(end + 2, header.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      fail("a header line of a part has no colon");
    }
    const std::string_view name = trim(line.substr(0, colon));
    const std::string_view value = trim(line.substr(colon + 1));
    if (equals_ignoring_case(name, "Content-Disposition")) {
      has_disposition = equals_ignoring_case(trim(value.substr(0, value.find(';'))), "form-data");
      field.name = header_parameter(value, "name");
      field.file_name = header_parameter(value, "filename");
      field.is_file = lower_ascii(value).find("filename") != std::string::npos;
    } else if (equals_ignoring_case(name, "Content-Type")) {
      field.content_type = std::string(value);
    }
  }
  if (!has_disposition || field.name.empty()) {
    fail("a part has no Content-Disposition: form-data with a name");
  }
}

}  // namespace

std::string header_parameter(std::string_view header, std::string_view name) {
  size_t semicolon = header.find(';');
  std::string_view rest =
      semicolon == std::string_view::npos ? std::string_view() : header.substr(semicolon + 1);
  while (!rest.empty()) {
    const size_t equals = rest.find_first_of("=;");
    if (equals == std::string_view::npos) {
      return "";
    }
    const std::string_view key = trim(rest.substr(0, equals));
    const bool has_value = rest[equals] == '=';
    rest.remove_prefix(equals + 1);
    if (!has_value) {
      continue;
    }
    rest = rest.substr(std::min(rest.find_first_not_of(" \t"), rest.size()));
    std::string value = take_value(rest);
    if (equals_ignoring_case(key, name)) {
      return value;
    }
    semicolon = rest.find(';');
    rest = semicolon == std::string_view::npos ? std::string_view() : rest.substr(semicolon + 1);
  }
  return "";
}

std::vector<FormField> parse_multipart(std::string_view body,
                                       std::string_view boundary,
                                       FormLimits limits) {
  if (boundary.empty() || boundary.size() > 70) {
    fail("multipart/form-data needs a boundary of 1 to 70 characters");
  }
  const std::string first = str_cat("--", boundary);
  const std::string delimiter = str_cat("\r\n--", boundary);
  size_t at = 0;
  if (!body.starts_with(first)) {
    at = body.find(delimiter);  // a preamble, which nobody reads
    if (at == std::string_view::npos) {
      fail("the boundary does not occur in the body");
    }
    at += 2;
  }
  body.remove_prefix(at + first.size());
  std::vector<FormField> fields;
  while (!body.starts_with("--")) {
    body.remove_prefix(std::min(body.find_first_not_of(" \t"), body.size()));
    if (!body.starts_with("\r\n")) {
      fail("a boundary is not followed by a line break");
    }
    if (fields.size() == limits.max_fields) {
      fail(str_cat("more than ", limits.max_fields, " fields"));
    }
    const size_t header_end = body.find("\r\n\r\n");
    if (header_end == std::string_view::npos || header_end > limits.max_part_header_bytes) {
      fail("the header of a part does not end");
    }
    FormField field;
    read_part_header(body.substr(2, header_end < 2 ? 0 : header_end - 2), field);
    body.remove_prefix(header_end + 4);
    // An empty part's delimiter begins with the line break that ended its header.
    const size_t end = body.find(delimiter);
    if (end == std::string_view::npos) {
      fail("the last part does not end with the boundary");
    }
    field.data = std::string(body.substr(0, end));
    body.remove_prefix(end + delimiter.size());
    fields.push_back(std::move(field));
  }
  return fields;
}

std::vector<FormField> parse_form(const HttpRequest& request, FormLimits limits) {
  const std::string type = request.media_type();
  if (type == "multipart/form-data") {
    return parse_multipart(
        request.body, header_parameter(request.headers.get("Content-Type"), "boundary"), limits);
  }
  if (type != "application/x-www-form-urlencoded") {
    throw Error(ErrorCode::kUnsupportedMedia,
                str_cat("[form] found \"",
                        type,
                        "\", expected multipart/form-data or application/x-www-form-urlencoded"));
  }
  std::vector<FormField> fields;
  for (auto& [name, value] : parse_urlencoded(request.body, limits.max_fields)) {
    FormField field;
    field.name = std::move(name);
    field.data = std::move(value);
    fields.push_back(std::move(field));
  }
  return fields;
}

}  // namespace mstar
