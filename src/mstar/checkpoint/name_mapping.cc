#include "mstar/checkpoint/name_mapping.h"

#include <optional>

namespace mstar {

namespace {

using Parts = std::vector<std::string_view>;

Parts split(std::string_view name) {
  Parts parts;
  size_t begin = 0;
  while (true) {
    const size_t dot = name.find('.', begin);
    parts.push_back(name.substr(begin, dot - begin));
    if (dot == std::string_view::npos) {
      return parts;
    }
    begin = dot + 1;
  }
}

struct Pattern {
  Parts parts;
  bool at_start = false;
  bool at_end = false;
};

Pattern parse(std::string_view text) {
  Pattern pattern;
  if (text.starts_with('^')) {
    pattern.at_start = true;
    text.remove_prefix(1);
  }
  if (text.ends_with('$')) {
    pattern.at_end = true;
    text.remove_suffix(1);
  }
  pattern.parts = split(text);
  return pattern;
}

struct Match {
  size_t begin = 0;  // components [begin, end) of the name
  size_t end = 0;
  Parts stars;
};

std::optional<Match> find_match(const Pattern& pattern, const Parts& name) {
  const size_t count = pattern.parts.size();
  if (count > name.size()) {
    return std::nullopt;
  }
  const size_t last = pattern.at_start ? 0 : name.size() - count;
  for (size_t begin = pattern.at_end ? name.size() - count : 0; begin <= last; ++begin) {
    Match match{begin, begin + count, {}};
    bool equal = true;
    for (size_t index = 0; index < count && equal; ++index) {
      if (pattern.parts[index] == "*") {
        match.stars.push_back(name[begin + index]);
      } else {
        equal = pattern.parts[index] == name[begin + index];
      }
    }
    if (equal) {
      return match;
    }
  }
  return std::nullopt;
}

std::string fill_stars(std::string_view text, const Parts& stars) {
  std::string filled;
  size_t next = 0;
  for (const char letter : text) {
    if (letter == '*' && next < stars.size()) {
      filled += stars[next++];
    } else {
      filled += letter;
    }
  }
  return filled;
}

// The name with the matched run replaced.
std::string replace(const Parts& name, const Match& match, std::string_view to) {
  std::string out;
  const auto append = [&out](std::string_view piece) {
    if (!out.empty()) {
      out += '.';
    }
    out += piece;
  };
  for (size_t index = 0; index < match.begin; ++index) {
    append(name[index]);
  }
  if (!to.empty()) {
    append(fill_stars(to, match.stars));
  }
  for (size_t index = match.end; index < name.size(); ++index) {
    append(name[index]);
  }
  return out;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  return find_match(parse(pattern), split(name)).has_value();
}

MappedName map_name(const NameMapping& mapping, std::string_view checkpoint_name) {
  MappedName mapped;
  mapped.name = std::string(checkpoint_name);
  for (const std::string& pattern : mapping.skip) {
    if (matches_pattern(pattern, checkpoint_name)) {
      mapped.skipped = true;
      return mapped;
    }
  }
  for (const RenameRule& rule : mapping.rename) {
    const Parts parts = split(mapped.name);
    if (const auto match = find_match(parse(rule.from), parts)) {
      mapped.name = replace(parts, *match, rule.to);
      break;
    }
  }
  for (const StackedParamRule& rule : mapping.stacked) {
    const Parts parts = split(mapped.name);
    if (const auto match = find_match(parse(rule.source), parts)) {
      mapped.shard_id = fill_stars(rule.shard_id, match->stars);
      mapped.name = replace(parts, *match, rule.target);
      break;
    }
  }
  return mapped;
}

}  // namespace mstar
