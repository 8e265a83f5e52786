#include "mstar/text/pattern.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/utf8.h"

namespace mstar {

Pattern::Pattern(const Json& json, std::string_view where) {
  if (json.is_string()) {
    literal_ = json.get_string();
  } else if (const Json* literal = json.find("String");
             literal != nullptr && literal->is_string()) {
    literal_ = literal->get_string();
  } else if (const Json* regex = json.find("Regex"); regex != nullptr && regex->is_string()) {
    regex_ = std::make_unique<Regex>(regex->get_string(), where);
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[",
                        where,
                        "] found a ",
                        json.type_name(),
                        " as pattern, expected {\"String\": …} or {\"Regex\": …}"));
  }
}

bool Pattern::find(std::string_view text,
                   size_t start,
                   Regex::Matcher& matcher,
                   MatchRange& match) const {
  if (regex_ != nullptr) {
    return regex_->find(text, start, matcher, match);
  }
  if (literal_.empty()) {
    return false;
  }
  const size_t found = text.find(literal_, start);
  match = {found, found + literal_.size()};
  return found != std::string_view::npos;
}

std::string Pattern::replace_all(std::string_view text,
                                 std::string_view content,
                                 Regex::Matcher& matcher) const {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t copied = 0;
  size_t start = 0;
  MatchRange match;
  while (start <= text.size() && find(text, start, matcher, match)) {
    out.append(text.substr(copied, match.begin - copied));
    out.append(content);
    copied = match.end;
    start = match.end;
    if (match.begin == match.end) {
      // An empty match: step over one character so that the search moves on.
      start += match.end < text.size() ? decode_utf8(text, match.end).num_bytes : 1;
    }
  }
  out.append(text.substr(copied));
  return out;
}

}  // namespace mstar
