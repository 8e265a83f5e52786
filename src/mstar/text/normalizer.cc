#include "mstar/text/normalizer.h"

#include <vector>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/base64.h"
#include "mstar/text/byte_alphabet.h"
#include "mstar/text/pattern.h"
#include "mstar/text/unicode.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

constexpr std::string_view kWhere = "tokenizer.json normalizer";
constexpr int kMaxDepth = 16;

bool read_flag(const Json& json, std::string_view key, bool fallback) {
  const Json* value = json.find(key);
  return value == nullptr || value->is_null() ? fallback : value->get_bool();
}

// Keeps the code points for which Keep says so.
template <bool (*Keep)(uint32_t)>
void filter(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    if (Keep(point.value)) {
      out.append(text, i, point.num_bytes);
    }
    i += point.num_bytes;
  }
  text = std::move(out);
}

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}

  void apply(std::string& text, Regex::Matcher& matcher) const override {
    for (const auto& step : steps_) {
      step->apply(text, matcher);
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}

  void apply(std::string& text, Regex::Matcher&) const override {
    if (!is_ascii(text)) {
      text = normalize_unicode(text, form_);
    }
  }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text, Regex::Matcher&) const override { text = to_lower(text); }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void apply(std::string& text, Regex::Matcher&) const override {
    size_t begin = 0;
    size_t end = text.size();
    while (left_ && begin < end) {
      const CodePoint point = decode_utf8(text, begin);
      if (!is_unicode_space(point.value)) {
        break;
      }
      begin += point.num_bytes;
    }
    while (right_ && end > begin) {
      const size_t start = previous_code_point(text, end);
      if (!is_unicode_space(decode_utf8(text, start).value)) {
        break;
      }
      end = start;
    }
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_;
  bool right_;
};

bool is_not_mark(uint32_t code_point) {
  return !is_unicode_mark(code_point);
}

class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text, Regex::Matcher&) const override { filter<is_not_mark>(text); }
};

class Replace final : public Normalizer {
 public:
  Replace(const Json& json)
      : pattern_(json.at("pattern"), kWhere), content_(json.at("content").get_string()) {}

  void apply(std::string& text, Regex::Matcher& matcher) const override {
    text = pattern_.replace_all(text, content_, matcher);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  void apply(std::string& text, Regex::Matcher&) const override {
    if (!text.empty()) {
      text.insert(0, prefix_);
    }
  }

 private:
  std::string prefix_;
};

class ByteLevel final : public Normalizer {
 public:
  void apply(std::string& text, Regex::Matcher&) const override { text = to_byte_alphabet(text); }
};

// Clean-up of the NMT toolkits: control characters vanish, odd spaces become spaces.
class Nmt final : public Normalizer {
 public:
  void apply(std::string& text, Regex::Matcher&) const override {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const CodePoint point = decode_utf8(text, i);
      const uint32_t c = point.value;
      if (becomes_space(c)) {
        out.push_back(' ');
      } else if (!vanishes(c)) {
        out.append(text, i, point.num_bytes);
      }
      i += point.num_bytes;
    }
    text = std::move(out);
  }

 private:
  static bool vanishes(uint32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
  }

  static bool becomes_space(uint32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

class Bert final : public Normalizer {
 public:
  explicit Bert(const Json& json)
      : clean_text_(read_flag(json, "clean_text", true)),
        handle_chinese_chars_(read_flag(json, "handle_chinese_chars", true)),
        lowercase_(read_flag(json, "lowercase", true)),
        strip_accents_(read_flag(json, "strip_accents", lowercase_)) {}

  void apply(std::string& text, Regex::Matcher&) const override {
    if (clean_text_) {
      clean(text);
    }
    if (handle_chinese_chars_) {
      pad_ideographs(text);
    }
    if (strip_accents_) {
      text = normalize_unicode(text, NormalForm::kNfd);
      filter<is_not_nonspacing>(text);
    }
    if (lowercase_) {
      text = to_lower(text);
    }
  }

 private:
  static bool is_not_nonspacing(uint32_t code_point) { return !is_nonspacing_mark(code_point); }

  static void clean(std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const CodePoint point = decode_utf8(text, i);
      const uint32_t c = point.value;
      if (c == '\t' || c == '\n' || c == '\r') {
        out.push_back(' ');
      } else if (c != 0 && c != 0xFFFD && !is_unicode_control(c)) {
        if (is_unicode_space(c)) {
          out.push_back(' ');
        } else {
          out.append(text, i, point.num_bytes);
        }
      }
      i += point.num_bytes;
    }
    text = std::move(out);
  }

  static bool is_ideograph(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }

  static void pad_ideographs(std::string& text) {
    if (is_ascii(text)) {
      return;
    }
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const CodePoint point = decode_utf8(text, i);
      const bool pad = is_ideograph(point.value);
      out.append(pad ? " " : "");
      out.append(text, i, point.num_bytes);
      out.append(pad ? " " : "");
      i += point.num_bytes;
    }
    text = std::move(out);
  }

  bool clean_text_;
  bool handle_chinese_chars_;
  bool lowercase_;
  bool strip_accents_;
};

std::unique_ptr<Normalizer> make(const Json& json, int depth);

std::unique_ptr<Normalizer> make_sequence(const Json& json, int depth) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const Json& step : json.at("normalizers").get_array()) {
    if (auto made = make(step, depth + 1)) {
      steps.push_back(std::move(made));
    }
  }
  return std::make_unique<Sequence>(std::move(steps));
}

std::unique_ptr<Normalizer> make_simple(std::string_view type) {
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  return nullptr;
}

std::unique_ptr<Normalizer> make(const Json& json, int depth) {
  if (json.is_null()) {
    return nullptr;
  }
  if (depth > kMaxDepth) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", kWhere, "] nested deeper than ", kMaxDepth, " levels"));
  }
  const std::string& type = json.at("type").get_string();
  if (auto simple = make_simple(type)) return simple;
  if (type == "Sequence") return make_sequence(json, depth);
  if (type == "BertNormalizer") return std::make_unique<Bert>(json);
  if (type == "Replace") return std::make_unique<Replace>(json);
  if (type == "Prepend") return std::make_unique<Prepend>(json.at("prepend").get_string());
  if (type == "Strip") {
    return std::make_unique<Strip>(read_flag(json, "strip_left", true),
                                   read_flag(json, "strip_right", true));
  }
  if (type == "Precompiled") {
    const Json& map = json.at("precompiled_charsmap");
    return map.is_null() ? nullptr
                         : make_precompiled_normalizer(decode_base64(map.get_string(), kWhere));
  }
  throw Error(ErrorCode::kUnsupported,
              str_cat("[",
                      kWhere,
                      "] type \"",
                      type,
                      "\" is not known here, expected one of NFC NFD NFKC NFKD Lowercase Strip "
                      "StripAccents Replace Prepend ByteLevel Nmt Precompiled BertNormalizer "
                      "Sequence"));
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Json& json) {
  return make(json, 0);
}

}  // namespace mstar
