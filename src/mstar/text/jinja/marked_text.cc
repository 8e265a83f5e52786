#include "mstar/text/jinja/marked_text.h"

#include <algorithm>

namespace mstar::jinja {

namespace {

void add_range(MarkedText& out, size_t begin, size_t end) {
  if (begin >= end) {
    return;
  }
  if (!out.user.empty() && out.user.back().end == begin) {
    out.user.back().end = end;
  } else {
    out.user.push_back({begin, end});
  }
}

}  // namespace

void append(MarkedText& out, const MarkedText& piece) {
  const size_t offset = out.text.size();
  out.text.append(piece.text);
  for (const TextRange& range : piece.user) {
    add_range(out, range.begin + offset, range.end + offset);
  }
}

void append(MarkedText& out, std::string_view piece, bool from_user) {
  const size_t offset = out.text.size();
  out.text.append(piece);
  if (from_user) {
    add_range(out, offset, out.text.size());
  }
}

MarkedText cut(const MarkedText& text, size_t begin, size_t end) {
  MarkedText out{text.text.substr(begin, end - begin), {}};
  const auto first = std::upper_bound(
      text.user.begin(), text.user.end(), begin, [](size_t position, const TextRange& range) {
        return position < range.end;
      });
  for (auto range = first; range != text.user.end() && range->begin < end; ++range) {
    add_range(out, std::max(range->begin, begin) - begin, std::min(range->end, end) - begin);
  }
  return out;
}

MarkedText derived(std::string bytes, const MarkedText& source) {
  MarkedText out{std::move(bytes), {}};
  if (!source.user.empty()) {
    add_range(out, 0, out.text.size());
  }
  return out;
}

}  // namespace mstar::jinja
