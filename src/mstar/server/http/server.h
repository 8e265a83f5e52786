#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mstar/server/http/message.h"

namespace mstar {

// Answers one request: either send(), or start(), any number of write() and then finish() or
// abort(). Every call is thread-safe and returns at once; what the client has not read yet waits
// in memory. A writer that is dropped unanswered answers 500.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  virtual void send(HttpResponse response) = 0;

  virtual void start(int status, HttpHeaders headers) = 0;
  virtual void write(std::string_view data) = 0;
  virtual void finish() = 0;
  // Cuts the connection, so that the client sees that the answer is not complete.
  virtual void abort() = 0;

  // Called once when the client goes away before the answer is complete; at once when it already
  // went. Both callbacks are dropped when the answer is complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  // Called with true when more waits for the client than the high-water mark, with false when it
  // has caught up.
  virtual void on_backpressure(std::function<void(bool)> callback) = 0;
};

// Handles a request; called on an HTTP thread, so it must not compute.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<ResponseWriter>)>;
// Sees a request before its body is read; a response refuses it.
using HttpGuard = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  uint16_t port = 8000;            // 0: any free one, see HttpServer::port()
  int num_threads = 2;
  int max_connections = 1024;
  size_t max_header_bytes = size_t{32} << 10;
  size_t max_body_bytes = size_t{64} << 20;
  size_t high_water_bytes = size_t{256} << 10;  // of one answer, waiting for its client
  std::chrono::milliseconds header_timeout{15'000};
  std::chrono::milliseconds body_timeout{60'000};    // of one read of the body
  std::chrono::milliseconds idle_timeout{75'000};    // between the requests of a connection
  std::chrono::milliseconds write_timeout{300'000};  // a client that reads nothing for so long
};

// HTTP/1.1 on one address: keep-alive, chunked answers, bounded headers, bodies and connections.
// Its threads run the connections; the public functions may be called from any thread.
class HttpServer {
 public:
  // Listens at once. Throws Error(kInvalidArgument) for an address that is none and
  // Error(kUnavailable) when it cannot be bound.
  HttpServer(HttpServerOptions options, HttpGuard guard, HttpHandler handler);
  ~HttpServer();  // cuts what is left

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  int num_connections() const;

  // Takes no further connections, closes idle ones and lets running answers end, at most so long.
  // True when all ended.
  bool stop(std::chrono::milliseconds timeout);

 private:
  class Impl;

  std::unique_ptr<Impl> impl_;
};

// Whether only this machine can reach the address.
bool is_loopback(const std::string& host);

}  // namespace mstar
