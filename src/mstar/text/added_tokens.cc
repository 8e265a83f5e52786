#include "mstar/text/added_tokens.h"

#include <algorithm>

#include "mstar/text/unicode.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

std::vector<std::string_view> contents_of(const std::vector<AddedToken>& tokens) {
  std::vector<std::string_view> contents;
  for (const AddedToken& token : tokens) {
    contents.push_back(token.content);
  }
  return contents;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() &&
         is_word_character(decode_utf8(text, previous_code_point(text, text.size())).value);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word_character(decode_utf8(text, 0).value);
}

// Start of the white space that ends before `end`.
size_t space_before(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t start = previous_code_point(text, end);
    if (!is_unicode_space(decode_utf8(text, start).value)) {
      break;
    }
    end = start;
  }
  return end;
}

// End of the white space that starts at `begin`.
size_t space_behind(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = decode_utf8(text, begin);
    if (!is_unicode_space(point.value)) {
      break;
    }
    begin += point.num_bytes;
  }
  return begin;
}

}  // namespace

bool overlaps(TextRange range, const std::vector<TextRange>& ranges) {
  // The first range that ends behind our begin is the only candidate.
  const auto next = std::upper_bound(
      ranges.begin(), ranges.end(), range.begin, [](size_t begin, const TextRange& other) {
        return begin < other.end;
      });
  return next != ranges.end() && next->begin < range.end;
}

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), trie_(contents_of(tokens_)) {}

const AddedToken* AddedTokenFinder::find_at(std::string_view text,
                                            size_t position,
                                            const Rules& rules) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t end = position; end < text.size();) {
    node = trie_.step(node, static_cast<unsigned char>(text[end++]));
    if (node == 0) {
      break;
    }
    const int32_t index = trie_.value(node);
    if (index < 0) {
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    const bool forged =
        rules.user != nullptr && token.special && overlaps({position, end}, *rules.user);
    if (!forged) {
      longest = &token;
    }
  }
  return longest;
}

void AddedTokenFinder::split(std::string_view text,
                             const Rules& rules,
                             std::vector<TextPart>& parts) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = find_at(text, at, rules);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->special && rules.specials_are_text) {
      continue;
    }
    if (token->single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token->lstrip) {
      begin = std::max(space_before(text, begin), done);
    }
    if (token->rstrip) {
      end = space_behind(text, end);
    }
    if (done < begin) {
      parts.push_back({{done, begin}, -1});
    }
    parts.push_back({{begin, end}, token->id});
    done = end;
  }
  if (done < text.size()) {
    parts.push_back({{done, text.size()}, -1});
  }
}

}  // namespace mstar
