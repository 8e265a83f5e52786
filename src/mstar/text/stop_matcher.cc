#include "mstar/text/stop_matcher.h"

#include <algorithm>

namespace mstar {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) {
      continue;
    }
    Progress stop{.text = std::move(stops[i]), .fallback = {0}, .index = static_cast<int>(i)};
    uint32_t length = 0;
    for (size_t at = 1; at < stop.text.size(); ++at) {
      while (length > 0 && stop.text[at] != stop.text[length]) {
        length = stop.fallback[length - 1];
      }
      length += stop.text[at] == stop.text[length] ? 1 : 0;
      stop.fallback.push_back(length);
    }
    stops_.push_back(std::move(stop));
  }
}

void StopMatcher::advance(Progress& stop, char byte) {
  while (stop.length > 0 && stop.text[stop.length] != byte) {
    stop.length = stop.fallback[stop.length - 1];
  }
  stop.length += stop.text[stop.length] == byte ? 1 : 0;
}

std::string StopMatcher::push(std::string_view piece) {
  if (stopped()) {
    return "";
  }
  for (const char byte : piece) {
    held_.push_back(byte);
    uint32_t longest = 0;
    for (Progress& stop : stops_) {
      advance(stop, byte);
      if (stop.length == stop.text.size() && stop.length > longest) {
        // Of several that end here, the one that begins first.
        matched_ = stop.index;
        longest = stop.length;
      }
    }
    if (stopped()) {
      held_.resize(held_.size() - longest);
      return std::move(held_);
    }
  }
  size_t keep = 0;
  for (const Progress& stop : stops_) {
    keep = std::max<size_t>(keep, stop.length);
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() {
  std::string out = stopped() ? "" : std::move(held_);
  held_.clear();
  return out;
}

}  // namespace mstar
