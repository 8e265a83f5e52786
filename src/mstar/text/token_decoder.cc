#include "mstar/text/token_decoder.h"

#include <algorithm>
#include <optional>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/byte_alphabet.h"
#include "mstar/text/pattern.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

constexpr std::string_view kWhere = "tokenizer.json decoder";
constexpr int kMaxDepth = 16;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) {
    return;
  }
  size_t at = text.find(from);
  while (at != std::string::npos) {
    text.replace(at, from.size(), to);
    at = text.find(from, at + to.size());
  }
}

std::string join(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& token : tokens) {
    out += token;
  }
  return out;
}

// English conventions that WordPiece and CTC undo, in this order.
void clean_up(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {{" .", "."},
                                                                             {" ?", "?"},
                                                                             {" !", "!"},
                                                                             {" ,", ","},
                                                                             {" ' ", "'"},
                                                                             {" n't", "n't"},
                                                                             {" 'm", "'m"},
                                                                             {" do not", " don't"},
                                                                             {" 's", "'s"},
                                                                             {" 've", "'ve"},
                                                                             {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    replace_all(text, from, to);
  }
}

// A decoder whose tokens do not look at each other: `stream` is all there is.
class TokenWise : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      stream(tokens[i], i == 0);
    }
  }

  bool can_stream() const override { return true; }
};

class JoinBySpaces final : public TokenWise {
 public:
  void stream(std::string& token, bool is_first) const override {
    if (!is_first) {
      token.insert(0, " ");
    }
  }
};

class ByteLevel final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (std::string& token : tokens) {
      stream(token, false);
      bytes += token;
    }
    tokens.assign(1, sanitize_utf8(bytes));
  }

  bool can_stream() const override { return true; }

  void stream(std::string& token, bool) const override {
    if (auto bytes = from_byte_alphabet(token)) {
      token = std::move(*bytes);
    }
  }
};

class Replace final : public TokenWise {
 public:
  explicit Replace(const Json& json)
      : pattern_(json.at("pattern"), kWhere), content_(json.at("content").get_string()) {}

  void stream(std::string& token, bool) const override {
    Regex::Matcher matcher;
    token = pattern_.replace_all(token, content_, matcher);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// The byte of a token "<0xE4>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
    return std::nullopt;
  }
  uint32_t value = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    const char letter = static_cast<char>(c & ~0x20);
    if (!digit && (letter < 'A' || letter > 'F')) {
      return std::nullopt;
    }
    value = value * 16 + static_cast<uint32_t>(digit ? c - '0' : letter - 'A' + 10);
  }
  return static_cast<char>(value);
}

class ByteFallback final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (!bytes.empty()) {
        out.push_back(is_valid_utf8(bytes) ? bytes : replacements(bytes.size()));
        bytes.clear();
      }
    };
    for (std::string& token : tokens) {
      if (const auto byte = fallback_byte(token)) {
        bytes.push_back(*byte);
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }

  bool can_stream() const override { return true; }

  void stream(std::string& token, bool) const override {
    if (const auto byte = fallback_byte(token)) {
      token.assign(1, *byte);
    }
  }

 private:
  // The library gives one mark for each byte of a run that is not UTF-8.
  static std::string replacements(size_t count) {
    std::string out;
    while (count-- > 0) {
      out += kReplacementCharacter;
    }
    return out;
  }
};

class Fuse final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override { tokens.assign(1, join(tokens)); }

  bool can_stream() const override { return true; }

  void stream(std::string&, bool) const override {}
};

// Drops a character from the ends of each text: up to `start` times in front, `stop` behind.
class Strip final : public TokenDecoder {
 public:
  Strip(const Json& json, bool behind_fuse)
      : content_(json.at("content").get_string()),
        start_(json.at("start").get_int()),
        stop_(json.at("stop").get_int()),
        behind_fuse_(behind_fuse) {
    if (count_code_points(content_) != 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[", kWhere, "] Strip of \"", content_, "\", expected one character"));
    }
  }

  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      strip(token);
    }
  }

  // The end of a fused text is not known before the end.
  bool can_stream() const override { return !behind_fuse_ || stop_ == 0; }

  void stream(std::string& token, bool is_first) const override {
    if (is_first || !behind_fuse_) {
      strip(token);
    }
  }

 private:
  void strip(std::string& token) const {
    for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i) {
      token.erase(0, content_.size());
    }
    for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i) {
      token.erase(token.size() - content_.size());
    }
  }

  std::string content_;
  int64_t start_;
  int64_t stop_;
  bool behind_fuse_;
};

class Metaspace final : public TokenWise {
 public:
  explicit Metaspace(const Json& json) : mark_(json.at("replacement").get_string()) {
    const Json* add = json.find("add_prefix_space");
    drops_first_ = add == nullptr || !add->is_bool() || add->get_bool();
    if (const Json* scheme = json.find("prepend_scheme"); scheme != nullptr) {
      drops_first_ = scheme->get_string() != "never";
    }
  }

  // All marks of the first token go, not only the first of them: so does the library.
  void stream(std::string& token, bool is_first) const override {
    replace_all(token, mark_, is_first && drops_first_ ? "" : " ");
  }

 private:
  std::string mark_;
  bool drops_first_;
};

class WordPiece final : public TokenWise {
 public:
  explicit WordPiece(const Json& json)
      : prefix_(json.at("prefix").get_string()), clean_up_(json.at("cleanup").get_bool()) {}

  void stream(std::string& token, bool is_first) const override {
    if (!is_first) {
      if (token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else {
        token.insert(0, " ");
      }
    }
    if (clean_up_) {
      clean_up(token);
    }
  }

 private:
  std::string prefix_;
  bool clean_up_;
};

// End-of-word marks become spaces, the last one nothing.
class BpeSuffix final : public TokenDecoder {
 public:
  explicit BpeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }

  bool can_stream() const override { return false; }

  void stream(std::string&, bool) const override { MSTAR_CHECK(false, "BPEDecoder streams"); }

 private:
  std::string suffix_;
};

// Speech recognition with repeated symbols and a blank.
class Ctc final : public TokenDecoder {
 public:
  explicit Ctc(const Json& json)
      : pad_(json.at("pad_token").get_string()),
        delimiter_(json.at("word_delimiter_token").get_string()),
        clean_up_(json.at("cleanup").get_bool()) {}

  void apply(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad_, "");
      if (clean_up_) {
        clean_up(token);
        replace_all(token, delimiter_, " ");
      }
    }
  }

  bool can_stream() const override { return false; }

  void stream(std::string&, bool) const override { MSTAR_CHECK(false, "CTC streams"); }

 private:
  std::string pad_;
  std::string delimiter_;
  bool clean_up_;
};

class Sequence final : public TokenDecoder {
 public:
  Sequence(std::vector<std::unique_ptr<TokenDecoder>> steps, bool can_stream)
      : steps_(std::move(steps)), can_stream_(can_stream) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& step : steps_) {
      step->apply(tokens);
    }
  }

  bool can_stream() const override { return can_stream_; }

  void stream(std::string& token, bool is_first) const override {
    for (const auto& step : steps_) {
      step->stream(token, is_first);
    }
  }

 private:
  std::vector<std::unique_ptr<TokenDecoder>> steps_;
  bool can_stream_;
};

std::unique_ptr<TokenDecoder> make(const Json& json, int depth, bool behind_fuse);

std::unique_ptr<TokenDecoder> make_sequence(const Json& json, int depth, bool behind_fuse) {
  std::vector<std::unique_ptr<TokenDecoder>> steps;
  bool can_stream = true;
  for (const Json& item : json.at("decoders").get_array()) {
    const std::string& type = item.at("type").get_string();
    steps.push_back(make(item, depth + 1, behind_fuse));
    // Behind the join only stripping the front can be done token by token.
    can_stream = can_stream && steps.back()->can_stream() &&
                 (!behind_fuse || type == "Strip" || type == "Fuse");
    behind_fuse = behind_fuse || type == "Fuse" || type == "ByteLevel";
  }
  return std::make_unique<Sequence>(std::move(steps), can_stream);
}

std::unique_ptr<TokenDecoder> make(const Json& json, int depth, bool behind_fuse) {
  if (depth > kMaxDepth) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", kWhere, "] nested deeper than ", kMaxDepth, " levels"));
  }
  const std::string& type = json.at("type").get_string();
  if (type == "Sequence") return make_sequence(json, depth, behind_fuse);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "Replace") return std::make_unique<Replace>(json);
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Strip") return std::make_unique<Strip>(json, behind_fuse);
  if (type == "Metaspace") return std::make_unique<Metaspace>(json);
  if (type == "WordPiece") return std::make_unique<WordPiece>(json);
  if (type == "BPEDecoder") return std::make_unique<BpeSuffix>(json.at("suffix").get_string());
  if (type == "CTC") return std::make_unique<Ctc>(json);
  throw Error(ErrorCode::kUnsupported,
              str_cat("[",
                      kWhere,
                      "] type \"",
                      type,
                      "\" is not known here, expected one of ByteLevel Replace ByteFallback Fuse "
                      "Strip Metaspace WordPiece BPEDecoder CTC Sequence"));
}

}  // namespace

std::unique_ptr<TokenDecoder> make_token_decoder(const Json& json) {
  if (json.is_null()) {
    return std::make_unique<JoinBySpaces>();
  }
  return make(json, 0, false);
}

}  // namespace mstar
