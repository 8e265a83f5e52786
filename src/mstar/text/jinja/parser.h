#pragma once

#include <string_view>

#include "mstar/text/jinja/ast.h"

namespace mstar::jinja {

// Parses a template. Throws Error(kInvalidArgument) with the line and what was expected there, and
// for tags, filters and tests that are not known.
Block parse(std::string_view source);

}  // namespace mstar::jinja
