// Byte-pair encoding: the symbols of a word are joined pair by pair, the most preferred pair first,
// the leftmost of equals first, until no known pair is left.

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/byte_alphabet.h"
#include "mstar/text/token_model.h"
#include "mstar/text/utf8.h"
#include "mstar/text/vocabulary.h"

namespace mstar {

namespace {

constexpr std::string_view kWordMark = "\u2581";
constexpr uint32_t kNoMerge = std::numeric_limits<uint32_t>::max();
// Up to this many symbols a scan for the best pair beats a heap.
constexpr size_t kScanLimit = 48;

[[noreturn]] void throw_bad(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[tokenizer.json model] ", what));
}

// Pair of symbols to what they become.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNoMerge;
    int32_t id = -1;
  };

  void reserve(size_t count) { slots_.resize(std::bit_ceil(count + count / 2 + 16)); }

  // Keeps the last merge given for a pair, as a map would.
  void add(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[probe(left, right)];
    slot = {left, right, merge};
  }

  Merge find(int32_t left, int32_t right) const { return slots_[probe(left, right)].merge; }

 private:
  struct Slot {
    int32_t left = -1;
    int32_t right = -1;
    Merge merge;
  };

  size_t probe(int32_t left, int32_t right) const {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    const size_t mask = slots_.size() - 1;
    size_t index = (key * 0x9E3779B97F4A7C15u >> 24) & mask;
    while (slots_[index].left >= 0 &&
           (slots_[index].left != left || slots_[index].right != right)) {
      index = (index + 1) & mask;
    }
    return index;
  }

  std::vector<Slot> slots_;
};

class Bpe final : public TokenModel {
 public:
  explicit Bpe(const BpeConfig& config)
      : fuse_unk_(config.fuse_unk),
        ignore_merges_(config.ignore_merges),
        words_are_bytes_(config.words_are_bytes),
        prefix_(key_of(config.continuing_subword_prefix)),
        suffix_(key_of(config.end_of_word_suffix)) {
    fill_vocabulary(config);
    fill_merges(config);
    fill_bytes(config);
    if (!config.unk_token.empty()) {
      unk_id_ = find_token(config.unk_token);
      if (unk_id_ < 0) {
        throw_bad(str_cat("unk_token \"", config.unk_token, "\" is not in the vocabulary"));
      }
    }
    split_at_mark_ = !words_are_bytes_ && !ignore_merges_ && prefix_.empty() && suffix_.empty() &&
                     vocabulary_.find(kWordMark) >= 0 && !mark_inside_token_;
  }

  void encode(std::string_view word,
              bool no_special,
              ModelScratch& scratch,
              std::vector<int32_t>& out) const override {
    const bool strict = no_special && reaches_special_;
    if (!split_at_mark_) {
      encode_cached(word, strict, scratch, out);
      return;
    }
    // No token holds a mark behind another character, so no merge crosses to a run of marks:
    // cutting there changes nothing and makes the pieces short enough to be remembered.
    size_t begin = 0;
    while (begin < word.size()) {
      size_t end = begin;
      while (word.substr(end).starts_with(kWordMark)) {
        end += kWordMark.size();
      }
      end = std::min(word.find(kWordMark, end), word.size());
      encode_cached(word.substr(begin, end - begin), strict, scratch, out);
      begin = end;
    }
  }

  void set_special(const std::vector<bool>& is_special) override {
    is_special_ = is_special;
    reaches_special_ =
        std::any_of(reachable_.begin(), reachable_.end(), [&](int32_t id) { return special(id); });
    reachable_.clear();
    reachable_.shrink_to_fit();
  }

 private:
  // A token of the file as this model looks it up; a token of a byte vocabulary that is not in the
  // byte alphabet (an added token) is never found in words and keeps its text.
  std::string key_of(std::string_view token) const {
    if (words_are_bytes_) {
      if (auto bytes = from_byte_alphabet(token)) {
        return std::move(*bytes);
      }
    }
    return std::string(token);
  }

  int32_t find_token(std::string_view token) const {
    return words_are_bytes_ ? vocabulary_.find(key_of(token)) : vocabulary_.find(token);
  }

  void fill_vocabulary(const BpeConfig& config) {
    size_t num_bytes = 0;
    for (const auto& [token, id] : config.vocabulary) {
      num_bytes += token.size();
    }
    vocabulary_.reserve(config.vocabulary.size(), num_bytes);
    for (const auto& [token, id] : config.vocabulary) {
      if (words_are_bytes_) {
        vocabulary_.add(key_of(token), id);
      } else {
        vocabulary_.add(token, id);
        mark_inside_token_ = mark_inside_token_ || has_mark_inside(token);
      }
    }
  }

  static bool has_mark_inside(std::string_view token) {
    size_t at = token.find(kWordMark);
    while (at != std::string_view::npos) {
      if (at > 0 && !token.substr(0, at).ends_with(kWordMark)) {
        return true;
      }
      at = token.find(kWordMark, at + kWordMark.size());
    }
    return false;
  }

  void fill_merges(const BpeConfig& config) {
    merges_.reserve(config.merges.size());
    std::string joined;
    for (const BpeConfig::Merge& merge : config.merges) {
      const std::string left = key_of(merge.left);
      const std::string right = key_of(merge.right);
      joined = left;
      joined += right.size() >= prefix_.size() ? std::string_view(right).substr(prefix_.size())
                                               : std::string_view(right);
      const int32_t left_id = vocabulary_.find(left);
      const int32_t right_id = vocabulary_.find(right);
      const int32_t id = vocabulary_.find(joined);
      if (left_id < 0 || right_id < 0 || id < 0) {
        throw_bad(str_cat("merge \"",
                          merge.left,
                          "\" + \"",
                          merge.right,
                          "\": a part or the result is not in the vocabulary"));
      }
      merges_.add(left_id, right_id, {merge.rank, id});
      reachable_.push_back(id);
    }
  }

  void fill_bytes(const BpeConfig& config) {
    std::string text;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      text.assign(1, static_cast<char>(byte));
      const bool is_character = words_are_bytes_ || byte < 0x80;
      byte_ids_[byte] = is_character ? vocabulary_.find(text) : -1;
      reachable_.push_back(byte_ids_[byte]);
    }
    static constexpr char kHex[] = "0123456789ABCDEF";
    for (uint32_t byte = 0; byte < 256 && config.byte_fallback; ++byte) {
      fallback_ids_[byte] = find_token(str_cat("<0x", kHex[byte / 16], kHex[byte % 16], ">"));
    }
    byte_fallback_ = config.byte_fallback;
  }

  bool special(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < is_special_.size() &&
           is_special_[static_cast<size_t>(id)];
  }

  void encode_cached(std::string_view word,
                     bool strict,
                     ModelScratch& scratch,
                     std::vector<int32_t>& out) const {
    if (strict) {
      encode_word(word, true, scratch);
      out.insert(out.end(), scratch.symbols.begin(), scratch.symbols.end());
      return;
    }
    const uint64_t hash = hash_bytes(word);
    if (scratch.cache.find(word, hash, out)) {
      return;
    }
    encode_word(word, false, scratch);
    scratch.cache.insert(word, hash, scratch.symbols);
    out.insert(out.end(), scratch.symbols.begin(), scratch.symbols.end());
  }

  // Leaves the ids in scratch.symbols.
  void encode_word(std::string_view word, bool strict, ModelScratch& scratch) const {
    scratch.symbols.clear();
    if (ignore_merges_) {
      const int32_t id = vocabulary_.find(word);
      if (id >= 0 && !(strict && special(id))) {
        scratch.symbols.push_back(id);
        return;
      }
    }
    append_symbols(word, strict, scratch);
    if (scratch.symbols.size() <= kScanLimit) {
      merge_by_scan(strict, scratch);
    } else {
      merge_by_heap(strict, scratch);
    }
  }

  // Id of one character with the decoration its place asks for.
  int32_t symbol_id(std::string_view character,
                    bool is_first,
                    bool is_last,
                    std::string& text) const {
    const bool add_prefix = !is_first && !prefix_.empty();
    const bool add_suffix = is_last && !suffix_.empty();
    if (!add_prefix && !add_suffix) {
      return character.size() == 1 ? byte_ids_[static_cast<unsigned char>(character[0])]
                                   : vocabulary_.find(character);
    }
    text.assign(add_prefix ? prefix_ : "");
    text.append(character);
    text.append(add_suffix ? suffix_ : "");
    return vocabulary_.find(text);
  }

  void append_symbols(std::string_view word, bool strict, ModelScratch& scratch) const {
    bool unknown_waits = false;
    const auto flush_unknown = [&] {
      if (unknown_waits) {
        scratch.symbols.push_back(unk_id_);
        unknown_waits = false;
      }
    };
    for (size_t i = 0; i < word.size();) {
      const size_t length = words_are_bytes_ ? 1 : decode_utf8(word, i).num_bytes;
      const std::string_view character = word.substr(i, length);
      const int32_t id = symbol_id(character, i == 0, i + length == word.size(), scratch.text);
      i += length;
      if (id >= 0 && !(strict && special(id))) {
        flush_unknown();
        scratch.symbols.push_back(id);
      } else if (!append_fallback(character, scratch.symbols) && unk_id_ >= 0) {
        if (!fuse_unk_) {
          flush_unknown();
        }
        unknown_waits = true;
      }
    }
    flush_unknown();
  }

  bool append_fallback(std::string_view character, std::vector<int32_t>& symbols) const {
    if (!byte_fallback_) {
      return false;
    }
    const auto id_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
    if (!std::all_of(character.begin(), character.end(), [&](char b) { return id_of(b) >= 0; })) {
      return false;
    }
    for (const char byte : character) {
      symbols.push_back(id_of(byte));
    }
    return true;
  }

  MergeTable::Merge find_merge(int32_t left, int32_t right, bool strict) const {
    const MergeTable::Merge merge = merges_.find(left, right);
    return strict && special(merge.id) ? MergeTable::Merge() : merge;
  }

  void merge_by_scan(bool strict, ModelScratch& scratch) const {
    auto& symbols = scratch.symbols;
    auto& ranks = scratch.ranks;  // of the pair (i, i + 1)
    ranks.clear();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      ranks.push_back(find_merge(symbols[i], symbols[i + 1], strict).rank);
    }
    while (!ranks.empty()) {
      const auto best = std::min_element(ranks.begin(), ranks.end());
      if (*best == kNoMerge) {
        break;
      }
      const auto at = static_cast<size_t>(best - ranks.begin());
      symbols[at] = merges_.find(symbols[at], symbols[at + 1]).id;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
      ranks.erase(best);
      if (at < ranks.size()) {
        ranks[at] = find_merge(symbols[at], symbols[at + 1], strict).rank;
      }
      if (at > 0) {
        ranks[at - 1] = find_merge(symbols[at - 1], symbols[at], strict).rank;
      }
    }
  }

  // A pair under way in the heap; out of date when its symbols have changed since.
  struct Candidate {
    uint32_t rank;
    uint32_t position;
    int32_t left;
    int32_t right;
    int32_t id;

    bool operator<(const Candidate& other) const {  // the heap's top is the preferred one
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };

  void merge_by_heap(bool strict, ModelScratch& scratch) const {
    auto& symbols = scratch.symbols;
    const auto count = static_cast<uint32_t>(symbols.size());
    std::vector<uint32_t> next(count);
    std::vector<uint32_t> previous(count);
    for (uint32_t i = 0; i < count; ++i) {
      next[i] = i + 1;
      previous[i] = i - 1;  // wraps at 0, which is never followed
    }
    std::priority_queue<Candidate> heap;
    const auto offer = [&](uint32_t at) {
      const int32_t left = symbols[at];
      const int32_t right = symbols[next[at]];
      const MergeTable::Merge merge = find_merge(left, right, strict);
      if (merge.rank != kNoMerge) {
        heap.push({merge.rank, at, left, right, merge.id});
      }
    };
    for (uint32_t i = 0; i + 1 < count; ++i) {
      offer(i);
    }
    while (!heap.empty()) {
      const Candidate top = heap.top();
      heap.pop();
      const uint32_t at = top.position;
      if (symbols[at] != top.left || next[at] >= count || symbols[next[at]] != top.right) {
        continue;
      }
      const uint32_t gone = next[at];
      symbols[at] = top.id;
      symbols[gone] = -1;
      next[at] = next[gone];
      if (next[at] < count) {
        previous[next[at]] = at;
        offer(at);
      }
      if (at > 0) {
        offer(previous[at]);
      }
    }
    std::erase(symbols, -1);
  }

  bool fuse_unk_;
  bool ignore_merges_;
  bool words_are_bytes_;
  bool byte_fallback_ = false;
  bool split_at_mark_ = false;
  bool mark_inside_token_ = false;
  bool reaches_special_ = false;
  std::string prefix_;
  std::string suffix_;
  int32_t unk_id_ = -1;
  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};
  std::array<int32_t, 256> fallback_ids_{};
  std::vector<bool> is_special_;
  std::vector<int32_t> reachable_;  // ids that words can become; only until set_special
};

}  // namespace

std::unique_ptr<TokenModel> make_bpe(const BpeConfig& config) {
  return std::make_unique<Bpe>(config);
}

}  // namespace mstar
