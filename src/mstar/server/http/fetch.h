#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mstar {

struct FetchOptions {
  size_t max_bytes = size_t{64} << 20;
  std::chrono::milliseconds timeout{10'000};  // for all of it, redirects too
  int max_redirects = 3;
  // Refuse hosts whose address is not one of the public internet, whatever their name. Off only in
  // tests.
  bool public_addresses_only = true;
};

// The parts of an absolute http or https URL.
struct FetchUrl {
  bool secure = false;
  std::string host;    // lower case, without brackets
  std::string port;    // given, or the scheme's
  std::string target;  // path and query, "/" at least

  // Throws Error(kInvalidArgument) for other schemes, user names, and what is no URL.
  static FetchUrl parse(std::string_view url);
};

// Gets what lies at the URL. Every hop's host must satisfy `is_allowed`, and its address is checked
// before the connection is made to that very address, so that a name that points elsewhere the
// second time gains nothing. Certificates are verified. Throws Error(kInvalidArgument) when a host
// or address is refused or the answer is not 200, Error(kTooLarge) over the size, and
// Error(kUnavailable) when the host cannot be reached in time. Blocks; any thread.
std::string fetch_url(std::string_view url,
                      const std::function<bool(std::string_view host)>& is_allowed,
                      const FetchOptions& options);

// Whether a numeric address ("10.0.0.1", "::1") belongs to the public internet: not private,
// loopback, link-local, shared, multicast, reserved, or one of these in IPv6 clothes. False for
// what is no address.
bool is_public_address(const std::string& address);

}  // namespace mstar
