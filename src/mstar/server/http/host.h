#pragma once

#include <optional>
#include <string>

#include "mstar/server/http/message.h"

namespace mstar {

// "http://HOST" as the client reached this server: by the request's Host header, with https where a
// proxy says X-Forwarded-Proto: https. Nothing when the header is missing or is no plain host and
// port, so that no client writes anything else into an answer.
std::optional<std::string> base_url(const HttpRequest& request);

}  // namespace mstar
