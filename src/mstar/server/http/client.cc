#include "mstar/server/http/client.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr size_t kMostHeaderBytes = size_t{256} << 10;

[[noreturn]] void unavailable(const std::string& what) {
  throw Error(ErrorCode::kUnavailable, str_cat("[http client] ", what));
}

// A connected socket.
class Socket {
 public:
  Socket(const HttpUrl& server, std::chrono::milliseconds timeout) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found) != 0) {
      unavailable(str_cat("no address for ", server.host));
    }
    for (const addrinfo* one = found; one != nullptr && fd_ < 0; one = one->ai_next) {
      const int fd = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
      if (fd >= 0 && ::connect(fd, one->ai_addr, one->ai_addrlen) == 0) {
        fd_ = fd;
      } else if (fd >= 0) {
        ::close(fd);
      }
    }
    freeaddrinfo(found);
    if (fd_ < 0) {
      unavailable(str_cat("cannot connect to ", server.host, ":", server.port));
    }
    const timeval limit{.tv_sec = timeout.count() / 1000,
                        .tv_usec = (timeout.count() % 1000) * 1000};
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }

  ~Socket() { ::close(fd_); }

  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void write(std::string_view data) const {
    while (!data.empty()) {
      const ssize_t size = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (size <= 0) {
        return;  // the server may have answered already; reading tells
      }
      data.remove_prefix(static_cast<size_t>(size));
    }
  }

  // Appends what comes; false at the end.
  bool read(std::string& out) const {
    char buffer[16384];
    const ssize_t size = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (size < 0) {
      unavailable(str_cat("reading: ", std::strerror(errno)));
    }
    out.append(buffer, static_cast<size_t>(size));
    return size > 0;
  }

 private:
  int fd_ = -1;
};

// Reads one answer piece by piece.
class AnswerReader {
 public:
  AnswerReader(const Socket& socket, const HttpCall& call) : socket_(socket), call_(call) {}

  HttpResponse read() {
    do {
      read_head();
    } while (response_.status == 100);
    const std::string_view length = response_.headers.get("Content-Length");
    if (call_.method == "HEAD" || response_.status == 204) {
      return std::move(response_);
    }
    if (equals_ignoring_case(response_.headers.get("Transfer-Encoding"), "chunked")) {
      read_chunks();
    } else if (!length.empty()) {
      read_exactly(number(length, 10));
    } else {
      while (deliver(std::exchange(buffer_, {})) && socket_.read(buffer_)) {
      }
    }
    return std::move(response_);
  }

 private:
  static size_t number(std::string_view text, int base) {
    size_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (result.ec != std::errc() || result.ptr == text.data()) {
      unavailable(str_cat("found \"", text, "\", expected a number"));
    }
    return value;
  }

  void more() {
    if (!socket_.read(buffer_)) {
      unavailable("the connection broke off");
    }
  }

  std::string take_line() {
    size_t end = 0;
    while ((end = buffer_.find("\r\n")) == std::string::npos) {
      if (buffer_.size() > kMostHeaderBytes) {
        unavailable("a line does not end");
      }
      more();
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    return line;
  }

  void read_head() {
    const std::string status = take_line();
    if (!status.starts_with("HTTP/1.") || status.size() < 12) {
      unavailable("the answer is not HTTP/1.1");
    }
    response_ = {};
    response_.status = static_cast<int>(number(std::string_view(status).substr(9, 3), 10));
    for (std::string line = take_line(); !line.empty(); line = take_line()) {
      const size_t colon = std::min(line.find(':'), line.size());
      response_.headers.add(
          line.substr(0, colon),
          std::string(trim(std::string_view(line).substr(std::min(colon + 1, line.size())))));
    }
  }

  // False: the caller has had enough.
  bool deliver(std::string data) {
    if (data.empty()) {
      return true;
    }
    if (!call_.on_data) {
      response_.body += data;
      return true;
    }
    return call_.on_data(response_, data);
  }

  bool read_exactly(size_t size) {
    while (size > 0) {
      if (buffer_.empty()) {
        more();
      }
      const size_t part = std::min(size, buffer_.size());
      std::string data = buffer_.substr(0, part);
      buffer_.erase(0, part);
      size -= part;
      if (!deliver(std::move(data))) {
        return false;
      }
    }
    return true;
  }

  void read_chunks() {
    while (true) {
      const size_t size = number(take_line(), 16);
      if (size == 0) {
        while (!take_line().empty()) {
        }
        return;
      }
      if (!read_exactly(size)) {
        return;
      }
      take_line();
    }
  }

  const Socket& socket_;
  const HttpCall& call_;
  HttpResponse response_;
  std::string buffer_;
};

}  // namespace

HttpUrl HttpUrl::parse(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[url] found \"", url, "\", expected http://HOST:PORT"));
  }
  url.remove_prefix(kScheme.size());
  const size_t slash = std::min(url.find('/'), url.size());
  std::string_view authority = url.substr(0, slash);
  HttpUrl out;
  out.path = std::string(url.substr(slash));
  while (out.path.ends_with('/')) {
    out.path.pop_back();
  }
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    out.port = std::string(authority.substr(colon + 1));
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  out.host = std::string(authority);
  if (out.host.empty() || out.port.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "[url] expected http://HOST:PORT");
  }
  return out;
}

HttpResponse http_call(const HttpUrl& server, const HttpCall& call) {
  const Socket socket(server, call.timeout);
  std::string text = str_cat(call.method, " ", server.path, call.path, " HTTP/1.1\r\n");
  text += str_cat("Host: ", server.host, ":", server.port, "\r\nConnection: close\r\n");
  for (const auto& [name, value] : call.headers.fields()) {
    text += str_cat(name, ": ", value, "\r\n");
  }
  if (!call.body.empty() || call.method == "POST") {
    text += str_cat("Content-Length: ", call.body.size(), "\r\n");
  }
  text += "\r\n";
  text += call.body;
  socket.write(text);
  return AnswerReader(socket, call).read();
}

}  // namespace mstar
