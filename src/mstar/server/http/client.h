#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "mstar/server/http/message.h"

namespace mstar {

// Where a server listens: "http://127.0.0.1:8000/prefix".
struct HttpUrl {
  std::string host;
  std::string port = "80";
  std::string path;  // without a slash at its end

  // Throws Error(kInvalidArgument) for anything but http://.
  static HttpUrl parse(std::string_view url);
};

struct HttpCall {
  std::string method = "GET";
  std::string path = "/";
  HttpHeaders headers{};
  std::string body{};
  std::chrono::milliseconds timeout{600'000};  // of one read or write
  // Gets the body as it comes (headers are there by then); false cuts the connection. Empty: the
  // body is collected in the response.
  std::function<bool(const HttpResponse& head, std::string_view data)> on_data{};
};

// One request on a connection of its own; blocks until the answer is complete. For the load
// generator and tests. Throws Error(kUnavailable) when there is no server, or it breaks off, or
// what comes is not HTTP.
HttpResponse http_call(const HttpUrl& server, const HttpCall& call);

}  // namespace mstar
