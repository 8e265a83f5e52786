#include "mstar/server/http/client.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/server/http/answer_reader.h"

namespace mstar {

namespace {

[[noreturn]] void unavailable(const std::string& what) {
  throw Error(ErrorCode::kUnavailable, str_cat("[http client] ", what));
}

// A connected socket.
class Socket final : public ByteSource {
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

  ~Socket() override { ::close(fd_); }

  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void write(std::string_view data) const {
    while (!data.empty()) {
      const ssize_t size = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (size < 0 && errno == EINTR) {
        continue;
      }
      if (size <= 0) {
        return;  // the server may have answered already; reading tells
      }
      data.remove_prefix(static_cast<size_t>(size));
    }
  }

  // Appends what comes; false at the end.
  bool read(std::string& out) override {
    char buffer[16384];
    ssize_t size = -1;
    do {  // a signal, or a pause of the process, is no reason to give up
      size = ::recv(fd_, buffer, sizeof(buffer), 0);
    } while (size < 0 && errno == EINTR);
    if (size < 0) {
      unavailable(str_cat("reading: ", std::strerror(errno)));
    }
    out.append(buffer, static_cast<size_t>(size));
    return size > 0;
  }

 private:
  int fd_ = -1;
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
  Socket socket(server, call.timeout);
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
  return read_answer(socket, call, std::numeric_limits<size_t>::max());
}

}  // namespace mstar
