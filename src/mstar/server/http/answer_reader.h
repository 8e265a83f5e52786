#pragma once

#include <cstddef>
#include <string>

#include "mstar/server/http/client.h"

namespace mstar {

// Where the bytes of an answer come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Appends what comes; false at the end. Throws Error(kUnavailable) when the connection fails.
  virtual bool read(std::string& out) = 0;
};

// Reads one answer to `call` from `source`, behind any 100 Continue. A body longer than
// `max_body_bytes` is Error(kTooLarge). Throws Error(kUnavailable) when what comes is not HTTP.
HttpResponse read_answer(ByteSource& source, const HttpCall& call, size_t max_body_bytes);

}  // namespace mstar
