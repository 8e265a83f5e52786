// SentencePiece stores its normalisation as a double-array trie over UTF-8 bytes whose leaves are
// offsets into a pool of zero-terminated replacements. Layout: uint32 size of the trie in bytes,
// the trie as little-endian uint32 units, the pool.

#include <utf8proc.h>

#include <cstring>
#include <optional>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/normalizer.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

// A grapheme of this many bytes or more is looked up character by character.
constexpr size_t kMaxGraphemeBytes = 6;

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(std::string blob) {
    uint32_t trie_bytes = 0;
    if (blob.size() >= 4) {
      std::memcpy(&trie_bytes, blob.data(), 4);
    }
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[tokenizer] character map of ",
                          blob.size(),
                          " bytes claims a trie of ",
                          trie_bytes,
                          " bytes: the file is damaged"));
    }
    trie_.resize(trie_bytes / 4);
    std::memcpy(trie_.data(), blob.data() + 4, trie_bytes);
    pool_ = blob.substr(4 + trie_bytes);
  }

  void apply(std::string& text, Regex::Matcher&) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = grapheme_end(text, begin);
      append_grapheme(std::string_view(text).substr(begin, end - begin), out);
      begin = end;
    }
    text = std::move(out);
  }

 private:
  static size_t grapheme_end(std::string_view text, size_t begin) {
    CodePoint previous = decode_utf8(text, begin);
    size_t end = begin + previous.num_bytes;
    utf8proc_int32_t state = 0;
    while (end < text.size()) {
      const CodePoint next = decode_utf8(text, end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous.value),
                                           static_cast<utf8proc_int32_t>(next.value),
                                           &state)) {
        break;
      }
      previous = next;
      end += next.num_bytes;
    }
    return end;
  }

  void append_grapheme(std::string_view grapheme, std::string& out) const {
    if (grapheme.size() < kMaxGraphemeBytes) {
      if (const auto mapped = find(grapheme)) {
        out.append(*mapped);
        return;
      }
    }
    for (size_t i = 0; i < grapheme.size();) {
      const size_t length = decode_utf8(grapheme, i).num_bytes;
      const std::string_view character = grapheme.substr(i, length);
      out.append(find(character).value_or(character));
      i += length;
    }
  }

  // Replacement of the shortest known beginning of `key`, as the reference takes it.
  std::optional<std::string_view> find(std::string_view key) const {
    size_t position = offset_of(trie_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) {
        return std::nullopt;
      }
      position ^= byte;
      if (position >= trie_.size()) {
        return std::nullopt;
      }
      const uint32_t unit = trie_[position];
      if ((unit & (1u << 31 | 0xFF)) != byte) {
        return std::nullopt;
      }
      position ^= offset_of(unit);
      if ((unit >> 8 & 1) != 0) {
        return position < trie_.size() ? pool_text(trie_[position] & 0x7FFFFFFFu) : std::nullopt;
      }
    }
    return std::nullopt;
  }

  static size_t offset_of(uint32_t unit) {
    return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6);
  }

  std::optional<std::string_view> pool_text(uint32_t offset) const {
    if (offset >= pool_.size()) {
      return std::nullopt;
    }
    const char* begin = pool_.c_str() + offset;
    const std::string_view text(begin);
    return is_valid_utf8(text) ? std::optional(text) : std::nullopt;
  }

  std::vector<uint32_t> trie_;
  std::string pool_;
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled_normalizer(std::string blob) {
  return std::make_unique<Precompiled>(std::move(blob));
}

}  // namespace mstar
