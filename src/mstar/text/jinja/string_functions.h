#pragma once

// Python's string functions over marked text, used by methods and filters.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/text/text_range.h"

namespace mstar::jinja {

// Drops characters of `characters` (white space if null) from the ends.
MarkedText strip(const MarkedText& text, const std::string* characters, bool left, bool right);

// str.split / rsplit: at each `separator`, or at white space if null; `limit` < 0: no limit.
std::vector<MarkedText> split(const MarkedText& text, const std::string* separator, int64_t limit);
std::vector<MarkedText> split_from_right(const MarkedText& text,
                                         const std::string* separator,
                                         int64_t limit);
std::vector<MarkedText> split_lines(const MarkedText& text, bool keep_ends);

// The first `limit` occurrences replaced; `limit` < 0: all.
MarkedText replace(const MarkedText& text,
                   const std::string& from,
                   const MarkedText& to,
                   int64_t limit);

MarkedText capitalize(const MarkedText& text);
MarkedText title(const MarkedText& text);         // str.title: a word begins behind any non-letter
MarkedText filter_title(const MarkedText& text);  // the filter: behind space, dash or bracket
MarkedText swap_case(const MarkedText& text);
MarkedText lower(const MarkedText& text);
MarkedText upper(const MarkedText& text);

// Fills up to `width` characters on the left, on the right, or on both sides.
enum class Align { kLeft, kRight, kCenter };
MarkedText pad(const MarkedText& text, int64_t width, std::string_view fill, Align align);

}  // namespace mstar::jinja
