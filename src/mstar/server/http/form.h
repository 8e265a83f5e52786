#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mstar/server/http/message.h"

namespace mstar {

// One field of a form. A file has a name; its bytes are what the client sent.
struct FormField {
  std::string name;
  std::string file_name;  // as the client says, for messages only: never a path
  bool is_file = false;
  std::string content_type;
  std::string data;
};

struct FormLimits {
  size_t max_fields = 256;
  size_t max_part_header_bytes = size_t{8} << 10;
};

// A request's form fields in order: multipart/form-data or urlencoded, by its Content-Type. Throws
// Error(kUnsupportedMedia) for other bodies and Error(kInvalidArgument) for malformed ones.
std::vector<FormField> parse_form(const HttpRequest& request, FormLimits limits = {});

// The parts of a multipart body. The boundary is the Content-Type's, 1 to 70 characters.
std::vector<FormField> parse_multipart(std::string_view body,
                                       std::string_view boundary,
                                       FormLimits limits = {});

// The value of `name` in "form-data; name=\"a\"; filename=\"b\"", unquoted; "" when absent.
std::string header_parameter(std::string_view header, std::string_view name);

}  // namespace mstar
