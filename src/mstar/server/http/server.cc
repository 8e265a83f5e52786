// The only file with Beast: it is heavy to compile.
#include "mstar/server/http/server.h"

#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/server/http/exchange.h"

namespace mstar {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using ErrorCode_ = boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

class ExchangeWriter final : public ResponseWriter {
 public:
  explicit ExchangeWriter(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  ~ExchangeWriter() override {
    if (!done_) {
      exchange_->dropped();
    }
  }

  void send(HttpResponse response) override {
    done_ = true;
    exchange_->send(std::move(response));
  }

  void start(int status, HttpHeaders headers) override { exchange_->start(status, headers); }

  void write(std::string_view data) override { exchange_->write(data); }

  void finish() override {
    done_ = true;
    exchange_->finish();
  }

  void abort() override {
    done_ = true;
    exchange_->abort();
  }

  void on_disconnect(std::function<void()> callback) override {
    exchange_->on_disconnect(std::move(callback));
  }

  void on_backpressure(std::function<void(bool)> callback) override {
    exchange_->on_backpressure(std::move(callback));
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
  std::atomic<bool> done_ = false;
};

HttpResponse refusal(int status, std::string_view message) {
  HttpResponse response{
      .status = status, .headers = {{"Content-Type", "application/json"}}, .body = {}};
  response.body = str_cat("{\"error\":{\"message\":\"",
                          message,
                          "\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":",
                          status,
                          "}}");
  return response;
}

}  // namespace

// ---- the server

class HttpServer::Impl {
 public:
  Impl(HttpServerOptions options, HttpGuard guard, HttpHandler handler);
  ~Impl();

  uint16_t port() const { return port_; }

  int num_connections() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(connections_.size());
  }

  bool stop(std::chrono::milliseconds timeout);

 private:
  class Connection;

  void listen();
  asio::awaitable<void> accept_loop();
  void adopt(tcp::socket socket);
  void remove(Connection* connection);

  const HttpServerOptions options_;
  const HttpGuard guard_;
  const HttpHandler handler_;
  asio::io_context context_;
  asio::strand<asio::io_context::executor_type> accept_strand_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_;
  uint16_t port_ = 0;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::vector<std::thread> threads_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections_;
  std::atomic<bool> stopping_ = false;
};

// One client's socket; all its work runs on one strand.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, tcp::socket socket)
      : server_(server), stream_(std::move(socket)), wakeup_(stream_.get_executor()) {}

  void start() {
    asio::co_spawn(
        stream_.get_executor(),
        [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->run(); },
        asio::detached);
  }

  // From any thread. Idle connections end; `force` ends busy ones too.
  void shut(bool force) {
    asio::post(stream_.get_executor(), [self = shared_from_this(), force] {
      if (force || self->idle_) {
        self->gone();
      }
    });
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<void> run();
  asio::awaitable<bool> wait_for_request();
  asio::awaitable<bool> serve_one();
  asio::awaitable<bool> read_body(Parser& parser);
  asio::awaitable<bool> answer(std::shared_ptr<Exchange> exchange);
  asio::awaitable<void> refuse(HttpResponse response);
  void watch(std::shared_ptr<Exchange> exchange);

  void gone() {
    ErrorCode_ ignored;
    stream_.socket().close(ignored);
    if (exchange_ != nullptr) {
      exchange_->close(false);
    }
  }

  Impl& server_;
  beast::tcp_stream stream_;
  asio::steady_timer wakeup_;
  beast::flat_buffer buffer_;
  std::shared_ptr<Exchange> exchange_;  // the answer being sent
  bool idle_ = true;
};

asio::awaitable<void> HttpServer::Impl::Connection::run() {
  try {
    bool go_on = true;
    while (go_on) {
      idle_ = true;
      go_on = co_await wait_for_request();
      if (go_on) {
        idle_ = false;
        go_on = co_await serve_one();
      }
    }
  } catch (const std::exception&) {
    // Out of memory or the like: this connection ends, the others go on.
  }
  gone();
  server_.remove(this);
}

// Waits for the first byte of the next request; false: there will be none.
asio::awaitable<bool> HttpServer::Impl::Connection::wait_for_request() {
  if (server_.stopping_) {
    co_return false;
  }
  if (buffer_.size() > 0) {
    co_return true;
  }
  stream_.expires_after(server_.options_.idle_timeout);
  const auto [error, size] =
      co_await stream_.async_read_some(buffer_.prepare(size_t{8} << 10), kTuple);
  if (error) {
    co_return false;
  }
  buffer_.commit(size);
  co_return true;
}

asio::awaitable<bool> HttpServer::Impl::Connection::serve_one() {
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(server_.options_.max_header_bytes));
  parser.body_limit(server_.options_.max_body_bytes);
  stream_.expires_after(server_.options_.header_timeout);
  const auto [error, size] = co_await http::async_read_header(stream_, buffer_, parser, kTuple);
  static_cast<void>(size);
  if (error) {
    if (error == beast::error::timeout) {
      co_return false;
    }
    if (error == http::error::header_limit) {
      co_await refuse(refusal(431, "the header is too large"));
    } else if (error == http::error::body_limit) {
      co_await refuse(refusal(413, "the body is larger than --max-body-mb allows"));
    } else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
               error != http::error::end_of_stream && error != http::error::partial_message) {
      co_await refuse(refusal(400, "this is not HTTP/1.1"));
    }
    co_return false;
  }
  HttpRequest request;
  request.method = std::string(parser.get().method_string());
  for (const auto& field : parser.get()) {
    request.headers.add(std::string(field.name_string()), std::string(field.value()));
  }
  const AnswerStyle style{.is_head = request.method == "HEAD",
                          .keep_alive = parser.keep_alive(),
                          .can_chunk = parser.get().version() >= 11};
  if (!parse_target(std::string_view(parser.get().target().data(), parser.get().target().size()),
                    request)) {
    co_await refuse(refusal(400, "the request target is not a plain absolute path"));
    co_return false;
  }
  if (auto refused = server_.guard_(request)) {
    if (style.is_head) {
      refused->body.clear();
    }
    co_await refuse(std::move(*refused));
    co_return false;
  }
  const bool has_body = co_await read_body(parser);
  if (!has_body) {
    co_return false;
  }
  request.body = std::move(parser.get().body());
  auto exchange =
      std::make_shared<Exchange>(stream_.get_executor(), style, server_.options_.high_water_bytes);
  exchange_ = exchange;
  watch(exchange);
  {
    auto writer = std::make_shared<ExchangeWriter>(exchange);
    try {
      server_.handler_(std::move(request), writer);
    } catch (const std::exception&) {
      writer->send(refusal(500, "the handler failed"));
    }
  }
  const bool complete = co_await answer(exchange);
  exchange->close(complete);
  exchange_ = nullptr;
  if (!complete || !exchange->keep_alive() || server_.stopping_) {
    co_return false;
  }
  ErrorCode_ ignored;
  stream_.socket().cancel(ignored);  // the watch: the next bytes are a request
  co_return true;
}

asio::awaitable<bool> HttpServer::Impl::Connection::read_body(Parser& parser) {
  if (equals_ignoring_case(std::string_view(parser.get()[http::field::expect]), "100-continue") &&
      !parser.is_done() && buffer_.size() == 0) {
    stream_.expires_after(server_.options_.body_timeout);
    const std::string text = "HTTP/1.1 100 Continue\r\n\r\n";
    const auto [error, size] = co_await asio::async_write(stream_, asio::buffer(text), kTuple);
    static_cast<void>(size);
    if (error) {
      co_return false;
    }
  }
  while (!parser.is_done()) {
    stream_.expires_after(server_.options_.body_timeout);
    const auto [error, size] = co_await http::async_read_some(stream_, buffer_, parser, kTuple);
    static_cast<void>(size);
    if (error) {
      if (error == http::error::body_limit) {
        co_await refuse(refusal(413, "the body is larger than --max-body-mb allows"));
      } else if (error == beast::error::timeout) {
        co_await refuse(refusal(408, "the body came too slowly"));
      } else if (error != http::error::partial_message && error != asio::error::eof) {
        co_await refuse(refusal(400, "the body is not well formed"));
      }
      co_return false;
    }
  }
  co_return true;
}

// Sends pieces until the last; true when the client got all of them.
asio::awaitable<bool> HttpServer::Impl::Connection::answer(std::shared_ptr<Exchange> exchange) {
  while (true) {
    Exchange::Piece piece = co_await exchange->next(wakeup_);
    if (piece.abort && piece.data.empty()) {
      co_return false;
    }
    stream_.expires_after(server_.options_.write_timeout);
    // In slices, so that the timeout is one of progress and not of a whole video.
    constexpr size_t kSlice = size_t{256} << 10;
    for (size_t begin = 0; begin < piece.data.size(); begin += kSlice) {
      stream_.expires_after(server_.options_.write_timeout);
      const size_t length = std::min(kSlice, piece.data.size() - begin);
      const auto [error, size] = co_await asio::async_write(
          stream_, asio::buffer(piece.data.data() + begin, length), kTuple);
      static_cast<void>(size);
      if (error) {
        co_return false;
      }
    }
    stream_.expires_never();
    exchange->sent();
    if (piece.abort) {
      co_return false;
    }
    if (piece.last) {
      co_return true;
    }
  }
}

// While an answer is computed nothing is read, so a client that goes away is noticed here. Bytes
// of a next request end the watch: then only a failing write tells.
void HttpServer::Impl::Connection::watch(std::shared_ptr<Exchange> exchange) {
  stream_.socket().async_wait(
      tcp::socket::wait_read,
      asio::bind_executor(
          stream_.get_executor(), [self = shared_from_this(), exchange](const ErrorCode_& error) {
            if (error || self->exchange_ != exchange) {
              return;
            }
            char byte = 0;
            const ssize_t size =
                ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
              // Woken for the request's own bytes, which a read had taken before another thread
              // heard of them.
              self->watch(exchange);
            } else if (size <= 0) {
              self->gone();
            }
          }));
}

// Answers and closes. Reads a little of what the client still sends: closing on unread bytes
// resets the connection, and the client would not see the answer.
asio::awaitable<void> HttpServer::Impl::Connection::refuse(HttpResponse response) {
  constexpr int kMostReads = 256;
  const std::string text =
      http_head(response.status,
                response.headers,
                str_cat("Content-Length: ", response.body.size(), "\r\nConnection: close\r\n")) +
      response.body;
  stream_.expires_after(std::chrono::seconds(5));
  const auto [error, size] = co_await asio::async_write(stream_, asio::buffer(text), kTuple);
  static_cast<void>(size);
  if (error) {
    co_return;
  }
  ErrorCode_ ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  std::vector<char> sink(size_t{64} << 10);
  stream_.expires_after(std::chrono::seconds(2));
  for (int count = 0; count < kMostReads; ++count) {
    const auto [read_error, read_size] =
        co_await stream_.async_read_some(asio::buffer(sink), kTuple);
    static_cast<void>(read_size);
    if (read_error) {
      co_return;
    }
  }
}

HttpServer::Impl::Impl(HttpServerOptions options, HttpGuard guard, HttpHandler handler)
    : options_(std::move(options)),
      guard_(std::move(guard)),
      handler_(std::move(handler)),
      accept_strand_(asio::make_strand(context_)),
      acceptor_(accept_strand_),
      accept_pause_(accept_strand_),
      work_(asio::make_work_guard(context_)) {
  listen();
  asio::co_spawn(
      accept_strand_,
      [this]() -> asio::awaitable<void> { co_await accept_loop(); },
      asio::detached);
  for (int index = 0; index < options_.num_threads; ++index) {
    threads_.emplace_back([this] { context_.run(); });
  }
}

HttpServer::Impl::~Impl() {
  stop(std::chrono::milliseconds(0));
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return connections_.empty(); });
  }
  work_.reset();
  context_.stop();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void HttpServer::Impl::listen() {
  ErrorCode_ error;
  const std::string host = options_.host == "localhost" ? "127.0.0.1" : options_.host;
  const auto address = asio::ip::make_address(host, error);
  if (error) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[http] --host \"", options_.host, "\" is not an IP address"));
  }
  const tcp::endpoint endpoint(address, options_.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) {
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  }
  if (!error) {
    acceptor_.bind(endpoint, error);
  }
  if (!error) {
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) {
    throw Error(
        ErrorCode::kUnavailable,
        str_cat("[http] cannot listen on ", host, ":", options_.port, ": ", error.message()));
  }
  port_ = acceptor_.local_endpoint().port();
}

asio::awaitable<void> HttpServer::Impl::accept_loop() {
  while (!stopping_) {
    auto [error, socket] = co_await acceptor_.async_accept(asio::make_strand(context_), kTuple);
    if (stopping_ || error == asio::error::operation_aborted) {
      co_return;
    }
    if (error) {  // out of descriptors: the clients that hold them must first go
      accept_pause_.expires_after(std::chrono::milliseconds(100));
      [[maybe_unused]] const auto [ignored] = co_await accept_pause_.async_wait(kTuple);
      continue;
    }
    adopt(std::move(socket));
  }
}

void HttpServer::Impl::adopt(tcp::socket socket) {
  ErrorCode_ ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    if (static_cast<int>(connections_.size()) < options_.max_connections) {
      connection = std::make_shared<Connection>(*this, std::move(socket));
      connections_.emplace(connection.get(), connection);
    }
  }
  if (connection != nullptr) {
    connection->start();
    return;
  }
  const std::string text =
      http_head(503, {{"Retry-After", "1"}}, "Content-Length: 0\r\nConnection: close\r\n");
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
}

void HttpServer::Impl::remove(Connection* connection) {
  const std::lock_guard lock(mutex_);
  connections_.erase(connection);
  changed_.notify_all();
}

bool HttpServer::Impl::stop(std::chrono::milliseconds timeout) {
  if (!stopping_.exchange(true)) {
    asio::post(accept_strand_, [this] {
      ErrorCode_ ignored;
      acceptor_.close(ignored);
      accept_pause_.cancel();
    });
  }
  const auto shut_all = [this](bool force) {  // mutex_ is held
    for (const auto& [pointer, weak] : connections_) {
      if (const auto connection = weak.lock()) {
        connection->shut(force);
      }
    }
  };
  std::unique_lock lock(mutex_);
  shut_all(false);
  if (changed_.wait_for(lock, timeout, [this] { return connections_.empty(); })) {
    return true;
  }
  shut_all(true);
  return false;
}

HttpServer::HttpServer(HttpServerOptions options, HttpGuard guard, HttpHandler handler)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(guard), std::move(handler))) {}

HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const {
  return impl_->port();
}

int HttpServer::num_connections() const {
  return impl_->num_connections();
}

bool HttpServer::stop(std::chrono::milliseconds timeout) {
  return impl_->stop(timeout);
}

bool is_loopback(const std::string& host) {
  ErrorCode_ error;
  const auto address = asio::ip::make_address(host, error);
  return host == "localhost" || (!error && address.is_loopback());
}

}  // namespace mstar
