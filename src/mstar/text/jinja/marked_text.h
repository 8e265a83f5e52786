#pragma once

// Operations on texts that know which bytes came from the user. Cutting and joining keep that
// exactly; whatever else changes a text that holds user bytes makes all of it the user's.

#include <string>
#include <string_view>

#include "mstar/text/text_range.h"

namespace mstar::jinja {

// Appends `piece`; its ranges move along and melt with a neighbour.
void append(MarkedText& out, const MarkedText& piece);

// Appends text of the template.
inline void append(MarkedText& out, std::string_view piece) {
  out.text.append(piece);
}

// Appends text of the user if `from_user`, else of the template.
void append(MarkedText& out, std::string_view piece, bool from_user);

// The bytes [begin, end) with their marks.
MarkedText cut(const MarkedText& text, size_t begin, size_t end);

// `bytes`, made from `source`: the user's if anything in the source was.
MarkedText derived(std::string bytes, const MarkedText& source);

}  // namespace mstar::jinja
