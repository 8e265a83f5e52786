#pragma once

#include <span>
#include <string_view>

#include "mstar/text/jinja/interpreter.h"

namespace mstar::jinja {

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

// Filters over lists, and filters over texts and numbers; find_filter looks through both.
std::span<const NamedFilter> list_filters();
std::span<const NamedFilter> text_filters();

}  // namespace mstar::jinja
