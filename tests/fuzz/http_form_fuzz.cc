// Bodies and targets that clients send: the form parsers, the target parser, base64 and routes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/form.h"
#include "mstar/server/http/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  mstar::HttpRequest request;
  if (mstar::parse_target(text, request)) {
    MSTAR_CHECK(request.path.starts_with('/') && request.path.find("//") == std::string::npos);
    mstar::HttpRequest again;
    MSTAR_CHECK(mstar::parse_target(request.path, again) && again.path == request.path);
  }
  const size_t line = text.find('\n');
  request.headers.add("Content-Type", text.substr(0, line));
  request.body = line == std::string::npos ? text : text.substr(line + 1);
  try {
    mstar::parse_form(request);
  } catch (const mstar::Error&) {
  }
  try {
    mstar::parse_multipart(request.body, "b");
  } catch (const mstar::Error&) {
  }
  try {
    const std::string bytes = mstar::decode_base64_lenient(text, "fuzz");
    MSTAR_CHECK(mstar::decode_base64_lenient(mstar::encode_base64(bytes), "fuzz") == bytes);
  } catch (const mstar::Error&) {
  }
  mstar::media_modality(text, request.body);
  return 0;
}
