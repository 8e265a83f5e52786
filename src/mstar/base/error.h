#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace mstar {

// What the caller can do about it. Maps one to one to an HTTP status in server/.
enum class ErrorCode : uint8_t {
  kInvalidArgument,    // the request, file or configuration is wrong (400)
  kUnauthenticated,    // no or wrong key (401)
  kNotFound,           // no such model, file or request (404)
  kTooLarge,           // over a cap (413)
  kUnsupportedMedia,   // bytes of a kind that is not read here (415)
  kResourceExhausted,  // retry later: the queue is full (429)
  kCancelled,          // the client went away (499)
  kInternal,           // our fault (500)
  kUnsupported,        // valid, but this model or build cannot do it (501; 400 on /v1 routes)
  kUnavailable,        // loading, draining, or a worker was lost (503)
};

const char* to_string(ErrorCode code);

// Thrown for failures of one request, one file or one configuration; never for our own bugs
// (MSTAR_CHECK) nor for expected scarcity (a return value).
// Message: "[where] what was found, what was expected, and what to do".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace mstar
