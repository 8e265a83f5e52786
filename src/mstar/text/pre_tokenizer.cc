#include "mstar/text/pre_tokenizer.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/byte_alphabet.h"
#include "mstar/text/pattern.h"
#include "mstar/text/unicode.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

constexpr std::string_view kWhere = "tokenizer.json pre_tokenizer";
constexpr int kMaxDepth = 16;

// The pattern that GPT-2 introduced and the ByteLevel step has built in.
constexpr std::string_view kByteLevelPattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

bool read_flag(const Json& json, std::string_view key, bool fallback) {
  const Json* value = json.find(key);
  return value == nullptr || value->is_null() ? fallback : value->get_bool();
}

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior read_behavior(const Json& json, Behavior fallback) {
  const Json* value = json.find("behavior");
  if (value == nullptr) {
    return fallback;
  }
  static constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  for (const auto& [name, behavior] : kNames) {
    if (value->get_string() == name) {
      return behavior;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[",
                      kWhere,
                      "] behavior \"",
                      value->get_string(),
                      "\" is not known, expected Removed, Isolated, MergedWithPrevious, "
                      "MergedWithNext or Contiguous"));
}

// Receives the stretches of one word in order, each a match or not, and makes words of them.
class Splitter {
 public:
  Splitter(const Word& word, Behavior behavior, std::vector<Word>& out)
      : word_(word), behavior_(behavior), out_(out), first_(out.size()) {}

  void add(size_t begin, size_t end, bool is_match) {
    if (begin == end && behavior_ != Behavior::kMergedWithNext) {
      previous_is_match_ = is_match;
      return;
    }
    bool extend = false;
    switch (behavior_) {
      case Behavior::kRemoved:
        if (is_match) {
          return;
        }
        break;
      case Behavior::kIsolated: break;
      case Behavior::kMergedWithPrevious: extend = is_match && !previous_is_match_; break;
      case Behavior::kMergedWithNext: extend = previous_is_match_ && !is_match; break;
      case Behavior::kContiguous: extend = is_match == previous_is_match_; break;
    }
    previous_is_match_ = is_match;
    if (extend && out_.size() > first_) {
      std::string_view& last = out_.back().text;
      last = {last.data(), last.size() + end - begin};
    } else if (begin != end) {
      out_.push_back({word_.text.substr(begin, end - begin), word_.at_start && begin == 0});
    }
  }

 private:
  const Word& word_;
  Behavior behavior_;
  std::vector<Word>& out_;
  size_t first_;
  bool previous_is_match_ = false;
};

// Calls `work(word, list)` for each word, which appends to list.next.
template <typename Work>
void for_each_word(WordList& list, const Work& work) {
  list.next.clear();
  for (const Word& word : list.words) {
    work(word, list);
  }
  std::swap(list.words, list.next);
}

// Cuts at the matches of a pattern. `invert`: what does not match counts as the match.
class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(WordList& list, Regex::Matcher& matcher) const override {
    for_each_word(list, [&](const Word& word, WordList& out) {
      Splitter splitter(word, behavior_, out.next);
      const std::string_view text = word.text;
      size_t done = 0;
      size_t start = 0;
      MatchRange match;
      while (start <= text.size() && pattern_.find(text, start, matcher, match)) {
        if (done < match.begin) {
          splitter.add(done, match.begin, invert_);
        }
        splitter.add(match.begin, match.end, !invert_);
        done = match.end;
        start = match.end;
        if (match.begin == match.end) {
          start += start < text.size() ? decode_utf8(text, start).num_bytes : 1;
        }
      }
      if (done < text.size()) {
        splitter.add(done, text.size(), invert_);
      }
    });
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

// Cuts at single characters of a kind.
class SplitAtKind final : public PreTokenizer {
 public:
  using Test = bool (*)(uint32_t);

  SplitAtKind(Test is_match, Behavior behavior) : is_match_(is_match), behavior_(behavior) {}

  void apply(WordList& list, Regex::Matcher&) const override {
    for_each_word(list, [&](const Word& word, WordList& out) {
      Splitter splitter(word, behavior_, out.next);
      const std::string_view text = word.text;
      size_t done = 0;
      for (size_t i = 0; i < text.size();) {
        const CodePoint point = decode_utf8(text, i);
        if (is_match_(point.value)) {
          if (done < i) {
            splitter.add(done, i, false);
          }
          splitter.add(i, i + point.num_bytes, true);
          done = i + point.num_bytes;
        }
        i += point.num_bytes;
      }
      if (done < text.size()) {
        splitter.add(done, text.size(), false);
      }
    });
  }

 private:
  Test is_match_;
  Behavior behavior_;
};

bool is_bert_punctuation(uint32_t c) {
  const bool ascii = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
                     (c >= 123 && c <= 126);
  return ascii || is_unicode_punctuation(c);
}

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}

  void apply(WordList& list, Regex::Matcher& matcher) const override {
    for (const auto& step : steps_) {
      step->apply(list, matcher);
    }
  }

  bool ends_in_bytes() const override { return !steps_.empty() && steps_.back()->ends_in_bytes(); }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

// Puts a space in front, cuts by the built-in pattern, and writes bytes in the byte alphabet
// unless it is the last step.
class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(const Json& json, bool is_last)
      : add_prefix_space_(read_flag(json, "add_prefix_space", true)), is_last_(is_last) {
    if (read_flag(json, "use_regex", true)) {
      Json pattern;
      pattern.set("Regex", kByteLevelPattern);
      split_ = std::make_unique<Split>(Pattern(pattern, kWhere), Behavior::kIsolated, false);
    }
  }

  void apply(WordList& list, Regex::Matcher& matcher) const override {
    if (add_prefix_space_) {
      for (Word& word : list.words) {
        if (word.text.front() != ' ') {
          word.text = list.keep(str_cat(" ", word.text));
        }
      }
    }
    if (split_ != nullptr) {
      split_->apply(list, matcher);
    }
    if (!is_last_) {
      for (Word& word : list.words) {
        word.text = list.keep(to_byte_alphabet(word.text));
      }
    }
  }

  bool ends_in_bytes() const override { return is_last_; }

 private:
  bool add_prefix_space_;
  bool is_last_;
  std::unique_ptr<Split> split_;
};

// Spaces become the word mark; one is put in front; words begin with it.
class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(const Json& json) : mark_(json.at("replacement").get_string()) {
    if (mark_.empty()) {
      throw Error(ErrorCode::kInvalidArgument, str_cat("[", kWhere, "] Metaspace without a mark"));
    }
    scheme_ = read_flag(json, "add_prefix_space", true) ? "always" : "never";
    if (const Json* scheme = json.find("prepend_scheme"); scheme != nullptr) {
      scheme_ = scheme->get_string();
    }
    if (scheme_ != "always" && scheme_ != "first" && scheme_ != "never") {
      throw Error(
          ErrorCode::kInvalidArgument,
          str_cat(
              "[", kWhere, "] prepend_scheme \"", scheme_, "\", expected always, first or never"));
    }
    if (read_flag(json, "split", true)) {
      split_ = std::make_unique<Split>(Pattern(mark_), Behavior::kMergedWithNext, false);
    }
  }

  void apply(WordList& list, Regex::Matcher& matcher) const override {
    const Pattern space(" ");
    for (Word& word : list.words) {
      std::string text = space.replace_all(word.text, mark_, matcher);
      const bool prepend = scheme_ == "always" || (scheme_ == "first" && word.at_start);
      if (prepend && !text.starts_with(mark_)) {
        text.insert(0, mark_);
      }
      word.text = list.keep(std::move(text));
    }
    if (split_ != nullptr) {
      split_->apply(list, matcher);
    }
  }

 private:
  std::string mark_;
  std::string scheme_;
  std::unique_ptr<Split> split_;
};

// Cuts in words of a fixed number of characters.
class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(const Json& json) : length_(json.at("length").get_int()) {
    if (length_ < 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[", kWhere, "] FixedLength of ", length_, ", expected at least 1"));
    }
  }

  void apply(WordList& list, Regex::Matcher&) const override {
    for_each_word(list, [&](const Word& word, WordList& out) {
      size_t begin = 0;
      while (begin < word.text.size()) {
        const std::string_view rest = word.text.substr(begin);
        const size_t size = code_point_offset(rest, static_cast<size_t>(length_));
        out.next.push_back({rest.substr(0, size), word.at_start && begin == 0});
        begin += size;
      }
    });
  }

 private:
  int64_t length_;
};

std::unique_ptr<PreTokenizer> make_bert() {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(std::make_unique<SplitAtKind>(is_unicode_space, Behavior::kRemoved));
  steps.push_back(std::make_unique<SplitAtKind>(is_bert_punctuation, Behavior::kIsolated));
  return std::make_unique<Sequence>(std::move(steps));
}

std::unique_ptr<PreTokenizer> make(const Json& json, int depth, bool is_last);

std::unique_ptr<PreTokenizer> make_sequence(const Json& json, int depth, bool is_last) {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  const auto& items = json.at("pretokenizers").get_array();
  for (size_t i = 0; i < items.size(); ++i) {
    if (auto made = make(items[i], depth + 1, is_last && i + 1 == items.size())) {
      steps.push_back(std::move(made));
    }
  }
  return std::make_unique<Sequence>(std::move(steps));
}

std::unique_ptr<PreTokenizer> make_split(const Json& json) {
  return std::make_unique<Split>(Pattern(json.at("pattern"), kWhere),
                                 read_behavior(json, Behavior::kIsolated),
                                 read_flag(json, "invert", false));
}

// Words and runs of other visible characters. Written out, because this step's idea of a word is
// not that of the \w in patterns.
std::unique_ptr<PreTokenizer> make_whitespace() {
  constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";
  Json pattern;
  pattern.set("Regex", str_cat("[", kWord, "]+|[^\\s", kWord, "]+"));
  return std::make_unique<Split>(Pattern(pattern, kWhere), Behavior::kRemoved, true);
}

std::unique_ptr<PreTokenizer> make(const Json& json, int depth, bool is_last) {
  if (json.is_null()) {
    return nullptr;
  }
  if (depth > kMaxDepth) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", kWhere, "] nested deeper than ", kMaxDepth, " levels"));
  }
  const std::string& type = json.at("type").get_string();
  if (type == "Sequence") return make_sequence(json, depth, is_last);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(json, is_last);
  if (type == "Split") return make_split(json);
  if (type == "Metaspace") return std::make_unique<Metaspace>(json);
  if (type == "BertPreTokenizer") return make_bert();
  if (type == "Whitespace") return make_whitespace();
  if (type == "FixedLength") return std::make_unique<FixedLength>(json);
  if (type == "WhitespaceSplit") {
    return std::make_unique<SplitAtKind>(is_unicode_space, Behavior::kRemoved);
  }
  if (type == "Digits") {
    const bool individual = read_flag(json, "individual_digits", false);
    return std::make_unique<SplitAtKind>(is_unicode_number,
                                         individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    return std::make_unique<SplitAtKind>(is_bert_punctuation,
                                         read_behavior(json, Behavior::kIsolated));
  }
  if (type == "CharDelimiterSplit") {
    return std::make_unique<Split>(
        Pattern(json.at("delimiter").get_string()), Behavior::kRemoved, false);
  }
  throw Error(ErrorCode::kUnsupported,
              str_cat("[",
                      kWhere,
                      "] type \"",
                      type,
                      "\" is not known here, expected one of ByteLevel Split Metaspace "
                      "BertPreTokenizer Whitespace WhitespaceSplit Digits Punctuation "
                      "CharDelimiterSplit FixedLength Sequence"));
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json, bool leave_bytes) {
  return make(json, 0, leave_bytes);
}

}  // namespace mstar
