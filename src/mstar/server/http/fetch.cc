#include "mstar/server/http/fetch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/server/http/answer_reader.h"

namespace mstar {

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[fetch] ", what));
}

[[noreturn]] void unreachable(const std::string& what) {
  throw Error(ErrorCode::kUnavailable, str_cat("[fetch] ", what));
}

struct Prefix {
  std::array<uint8_t, 16> bytes;
  int num_bits;
};

bool has_prefix(const uint8_t* address, const Prefix& prefix) {
  for (int bit = 0; bit < prefix.num_bits; ++bit) {
    const int shift = 7 - bit % 8;
    if (((address[bit / 8] ^ prefix.bytes[static_cast<size_t>(bit / 8)]) >> shift & 1) != 0) {
      return false;
    }
  }
  return true;
}

// IANA's special-purpose registries: whatever is not globally reachable.
bool is_public_v4(const uint8_t* address) {
  static constexpr std::array<Prefix, 15> kSpecial = {{
      {{0}, 8},
      {{10}, 8},
      {{100, 64}, 10},
      {{127}, 8},
      {{169, 254}, 16},
      {{172, 16}, 12},
      {{192, 0, 0}, 24},
      {{192, 0, 2}, 24},
      {{192, 88, 99}, 24},
      {{192, 168}, 16},
      {{198, 18}, 15},
      {{198, 51, 100}, 24},
      {{203, 0, 113}, 24},
      {{224}, 4},
      {{240}, 4},
  }};
  return std::ranges::none_of(kSpecial,
                              [&](const Prefix& prefix) { return has_prefix(address, prefix); });
}

bool is_public_v6(const uint8_t* address) {
  static constexpr Prefix kMapped = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}, 96};
  static constexpr Prefix kTranslated = {{0x00, 0x64, 0xFF, 0x9B}, 96};
  if (has_prefix(address, kMapped) || has_prefix(address, kTranslated)) {
    return is_public_v4(address + 12);
  }
  static constexpr Prefix kSixToFour = {{0x20, 0x02}, 16};
  if (has_prefix(address, kSixToFour)) {
    return is_public_v4(address + 2);
  }
  static constexpr std::array<Prefix, 3> kSpecial = {{
      {{0x20, 0x01, 0x00}, 23},
      {{0x20, 0x01, 0x0D, 0xB8}, 32},
      {{0x3F, 0xFF}, 20},
  }};
  static constexpr Prefix kGlobal = {{0x20}, 3};  // all that is assigned to the public
  return has_prefix(address, kGlobal) && std::ranges::none_of(kSpecial, [&](const Prefix& prefix) {
           return has_prefix(address, prefix);
         });
}

bool is_public(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof(in));
    return is_public_v4(reinterpret_cast<const uint8_t*>(&in.sin_addr));
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof(in));
    return is_public_v6(in.sin6_addr.s6_addr);
  }
  return false;
}

int milliseconds_left(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (left <= 0) {
    unreachable("it took too long");
  }
  return static_cast<int>(std::min<int64_t>(left, 1 << 30));
}

void wait_for(int fd, short events, Clock::time_point deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  const int result = ::poll(&entry, 1, milliseconds_left(deadline));
  if (result == 0 || (result < 0 && errno != EINTR)) {
    unreachable("it took too long");
  }
}

// A connected socket that never blocks longer than the deadline.
class Connection : public ByteSource {
 public:
  Connection(const FetchUrl& url, const FetchOptions& options, Clock::time_point deadline)
      : deadline_(deadline) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found) != 0) {
      unreachable(str_cat("no address for ", url.host));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &freeaddrinfo);
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      if (options.public_addresses_only && !is_public(one->ai_addr)) {
        refuse(str_cat(url.host, " is not a host of the public internet"));
      }
    }
    for (const addrinfo* one = found; one != nullptr && fd_ < 0; one = one->ai_next) {
      connect(*one);
    }
    if (fd_ < 0) {
      unreachable(str_cat("cannot connect to ", url.host, ":", url.port));
    }
  }

  ~Connection() override {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  virtual void write(std::string_view data) {
    while (!data.empty()) {
      const ssize_t size = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (size > 0) {
        data.remove_prefix(static_cast<size_t>(size));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        wait_for(fd_, POLLOUT, deadline_);
      } else {
        unreachable("the connection broke off");
      }
    }
  }

  bool read(std::string& out) override {
    std::array<char, 16384> buffer;
    while (true) {
      milliseconds_left(deadline_);
      const ssize_t size = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (size >= 0) {
        out.append(buffer.data(), static_cast<size_t>(size));
        return size > 0;
      }
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        unreachable("the connection broke off");
      }
      wait_for(fd_, POLLIN, deadline_);
    }
  }

 protected:
  int fd() const { return fd_; }

  Clock::time_point deadline() const { return deadline_; }

 private:
  void connect(const addrinfo& address) {
    const int fd = ::socket(
        address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
    if (fd < 0) {
      return;
    }
    bool connected = ::connect(fd, address.ai_addr, address.ai_addrlen) == 0;
    if (!connected && errno == EINPROGRESS) {
      try {
        wait_for(fd, POLLOUT, deadline_);
      } catch (const Error&) {
        ::close(fd);
        throw;
      }
      int problem = 0;
      socklen_t size = sizeof(problem);
      connected = ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 && problem == 0;
    }
    if (connected) {
      fd_ = fd;
    } else {
      ::close(fd);
    }
  }

  const Clock::time_point deadline_;
  int fd_ = -1;
};

// The same inside TLS, with the system's certificates.
class SecureConnection final : public Connection {
 public:
  SecureConnection(const FetchUrl& url, const FetchOptions& options, Clock::time_point deadline)
      : Connection(url, options, deadline), context_(SSL_CTX_new(TLS_client_method())) {
    if (context_ == nullptr || SSL_CTX_set_default_verify_paths(context_.get()) != 1) {
      unreachable("no certificates on this machine");
    }
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    tls_.reset(SSL_new(context_.get()));
    if (tls_ == nullptr || SSL_set_fd(tls_.get(), fd()) != 1 ||
        SSL_set_tlsext_host_name(tls_.get(), url.host.c_str()) != 1 ||
        SSL_set1_host(tls_.get(), url.host.c_str()) != 1) {
      unreachable("TLS cannot be set up");
    }
    while (true) {
      const int result = SSL_connect(tls_.get());
      if (result == 1) {
        return;
      }
      wait(result, str_cat("no safe connection to ", url.host));
    }
  }

  void write(std::string_view data) override {
    while (!data.empty()) {
      const int size = SSL_write(tls_.get(), data.data(), static_cast<int>(data.size()));
      if (size > 0) {
        data.remove_prefix(static_cast<size_t>(size));
      } else {
        wait(size, "the connection broke off");
      }
    }
  }

  bool read(std::string& out) override {
    std::array<char, 16384> buffer;
    while (true) {
      milliseconds_left(deadline());
      const int size = SSL_read(tls_.get(), buffer.data(), static_cast<int>(buffer.size()));
      if (size > 0) {
        out.append(buffer.data(), static_cast<size_t>(size));
        return true;
      }
      if (SSL_get_error(tls_.get(), size) == SSL_ERROR_ZERO_RETURN) {
        return false;
      }
      wait(size, "the connection broke off");
    }
  }

 private:
  void wait(int result, const std::string& problem) {
    switch (SSL_get_error(tls_.get(), result)) {
      case SSL_ERROR_WANT_READ: wait_for(fd(), POLLIN, deadline()); break;
      case SSL_ERROR_WANT_WRITE: wait_for(fd(), POLLOUT, deadline()); break;
      default: ERR_clear_error(); unreachable(problem);
    }
  }

  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

    void operator()(SSL* tls) const { SSL_free(tls); }
  };

  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> tls_;
};

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Where `location` points as seen from `from`.
std::string resolve(const FetchUrl& from, std::string_view location) {
  if (location.find("://") != std::string_view::npos) {
    return std::string(location);
  }
  const std::string scheme = from.secure ? "https:" : "http:";
  if (location.starts_with("//")) {
    return str_cat(scheme, location);
  }
  const bool is_v6 = from.host.find(':') != std::string::npos;
  const std::string origin =
      str_cat(scheme, "//", is_v6 ? "[" : "", from.host, is_v6 ? "]" : "", ":", from.port);
  if (location.starts_with('/')) {
    return str_cat(origin, location);
  }
  const std::string_view path = std::string_view(from.target).substr(0, from.target.find('?'));
  return str_cat(origin, path.substr(0, path.rfind('/') + 1), location);
}

}  // namespace

FetchUrl FetchUrl::parse(std::string_view url) {
  FetchUrl out;
  const size_t scheme_end = url.find("://");
  const std::string scheme = lower_ascii(url.substr(0, std::min(scheme_end, url.size())));
  if (scheme_end == std::string_view::npos || (scheme != "http" && scheme != "https")) {
    refuse("expected http:// or https://");
  }
  out.secure = scheme == "https";
  url.remove_prefix(scheme_end + 3);
  url = url.substr(0, url.find('#'));
  const size_t path = std::min(url.find_first_of("/?"), url.size());
  std::string_view authority = url.substr(0, path);
  out.target = str_cat(path < url.size() && url[path] == '/' ? "" : "/", url.substr(path));
  for (const char letter : url) {
    if (static_cast<unsigned char>(letter) <= ' ' || letter == '\\' || letter == '\x7F') {
      refuse("the URL has characters that must be escaped");
    }
  }
  if (authority.find('@') != std::string_view::npos) {
    refuse("a URL with a user name is not fetched");
  }
  out.port = out.secure ? "443" : "80";
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    out.port = std::string(authority.substr(colon + 1));
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  out.host = lower_ascii(authority);
  while (out.host.ends_with('.')) {
    out.host.pop_back();
  }
  const bool digits = !out.port.empty() && out.port.size() <= 5 &&
                      out.port.find_first_not_of("0123456789") == std::string::npos;
  if (out.host.empty() || !digits) {
    refuse("expected http://HOST/PATH");
  }
  return out;
}

std::string fetch_url(std::string_view text,
                      const std::function<bool(std::string_view)>& is_allowed,
                      const FetchOptions& options) {
  const Clock::time_point deadline = Clock::now() + options.timeout;
  std::string next(text);
  for (int hop = 0; hop <= options.max_redirects; ++hop) {
    const FetchUrl url = FetchUrl::parse(next);
    if (!is_allowed(url.host)) {
      refuse(str_cat("the host ", url.host, " is not one that media are fetched from"));
    }
    std::unique_ptr<Connection> connection;
    if (url.secure) {
      connection = std::make_unique<SecureConnection>(url, options, deadline);
    } else {
      connection = std::make_unique<Connection>(url, options, deadline);
    }
    const bool is_v6 = url.host.find(':') != std::string::npos;
    connection->write(str_cat("GET ",
                              url.target,
                              " HTTP/1.1\r\nHost: ",
                              is_v6 ? "[" : "",
                              url.host,
                              is_v6 ? "]" : "",
                              ":",
                              url.port,
                              "\r\nUser-Agent: mstar\r\nAccept: */*\r\nConnection: close\r\n\r\n"));
    HttpResponse response = read_answer(*connection, HttpCall{}, options.max_bytes);
    if (is_redirect(response.status)) {
      next = resolve(url, trim(response.headers.get("Location")));
      continue;
    }
    if (response.status != 200) {
      refuse(str_cat(url.host, " answered ", response.status));
    }
    return std::move(response.body);
  }
  refuse(str_cat("more than ", options.max_redirects, " redirects"));
}

bool is_public_address(const std::string& address) {
  std::array<uint8_t, 16> bytes{};
  if (inet_pton(AF_INET, address.c_str(), bytes.data()) == 1) {
    return is_public_v4(bytes.data());
  }
  return inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1 && is_public_v6(bytes.data());
}

}  // namespace mstar
