// The unigram model: of all ways to cut a word in known pieces, the one with the highest sum of
// log probabilities (Viterbi over byte positions).

#include <algorithm>
#include <array>
#include <limits>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/byte_trie.h"
#include "mstar/text/token_model.h"
#include "mstar/text/utf8.h"
#include "mstar/text/vocabulary.h"

namespace mstar {

namespace {

// An unknown character costs this much more than the least likely piece.
constexpr double kUnknownPenalty = 10.0;

[[noreturn]] void throw_bad(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[unigram] ", what));
}

class Unigram final : public TokenModel {
 public:
  explicit Unigram(const UnigramConfig& config)
      : trie_(texts_of(config)), unk_id_(config.unk_id), byte_fallback_(config.byte_fallback) {
    if (unk_id_ >= static_cast<int32_t>(config.pieces.size())) {
      throw_bad(str_cat("unk_id ", unk_id_, " of ", config.pieces.size(), " pieces"));
    }
    double lowest = std::numeric_limits<double>::infinity();
    Vocabulary lookup;
    for (size_t id = 0; id < config.pieces.size(); ++id) {
      const auto& [text, score] = config.pieces[id];
      scores_.push_back(score);
      lowest = std::min(lowest, score);
      if (byte_fallback_ && text.size() == 6 && text.starts_with("<0x")) {
        lookup.add(text, static_cast<int32_t>(id));
      }
    }
    unk_score_ = lowest - kUnknownPenalty;
    static constexpr char kHex[] = "0123456789ABCDEF";
    for (uint32_t byte = 0; byte < 256; ++byte) {
      fallback_ids_[byte] = lookup.find(str_cat("<0x", kHex[byte / 16], kHex[byte % 16], ">"));
    }
  }

  void encode(std::string_view word,
              bool no_special,
              ModelScratch& scratch,
              std::vector<int32_t>& out) const override {
    if (no_special) {
      solve(word, true, scratch);
      append_path(word, scratch, out);
      return;
    }
    const uint64_t hash = hash_bytes(word);
    if (scratch.cache.find(word, hash, out)) {
      return;
    }
    const size_t begin = out.size();
    solve(word, false, scratch);
    append_path(word, scratch, out);
    scratch.cache.insert(word, hash, std::span(out).subspan(begin));
  }

  void set_special(const std::vector<bool>& is_special) override { is_special_ = is_special; }

 private:
  static std::vector<std::string_view> texts_of(const UnigramConfig& config) {
    std::vector<std::string_view> texts;
    for (const auto& [text, score] : config.pieces) {
      texts.push_back(text);
    }
    return texts;
  }

  static constexpr int32_t kUnreached = -2;
  static constexpr int32_t kUnknown = -1;

  bool special(int32_t id) const {
    return static_cast<size_t>(id) < is_special_.size() && is_special_[static_cast<size_t>(id)];
  }

  // scratch.path[end] becomes (start, id) of the last piece of the best way to reach `end`.
  void solve(std::string_view word, bool no_special, ModelScratch& scratch) const {
    auto& path = scratch.path;
    auto& scores = scratch.scores;
    path.assign(word.size() + 1, {0, kUnreached});
    scores.assign(word.size() + 1, 0.0);
    const auto offer = [&](size_t start, size_t end, int32_t id, double score) {
      if (path[end].second == kUnreached || score > scores[end]) {
        path[end] = {static_cast<uint32_t>(start), id};
        scores[end] = score;
      }
    };
    for (size_t start = 0; start < word.size();) {
      const size_t length = decode_utf8(word, start).num_bytes;
      bool has_single = false;
      uint32_t node = 0;
      for (size_t end = start; end < word.size();) {
        node = trie_.step(node, static_cast<unsigned char>(word[end++]));
        if (node == 0) {
          break;
        }
        const int32_t id = trie_.value(node);
        if (id < 0 || (no_special && special(id))) {
          continue;
        }
        offer(start,
              end,
              id == unk_id_ ? kUnknown : id,
              scores[start] + scores_[static_cast<size_t>(id)]);
        has_single = has_single || end - start == length;
      }
      if (!has_single) {
        offer(start, start + length, kUnknown, scores[start] + unk_score_);
      }
      start += length;
    }
  }

  // Walks the path backwards; neighbouring unknown pieces become one.
  void append_path(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
    auto& pieces = scratch.symbols;
    pieces.clear();
    for (size_t end = word.size(); end > 0;) {
      auto [start, id] = scratch.path[end];
      if (id != kUnknown) {
        pieces.push_back(id);
        end = start;
        continue;
      }
      const size_t unknown_end = end;
      while (end > 0 && scratch.path[end].second == kUnknown) {
        end = scratch.path[end].first;
      }
      append_unknown(word.substr(end, unknown_end - end), pieces);
    }
    out.insert(out.end(), pieces.rbegin(), pieces.rend());
  }

  // Appends in reverse, as append_path collects.
  void append_unknown(std::string_view text, std::vector<int32_t>& pieces) const {
    const auto id_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
    if (byte_fallback_ &&
        std::all_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) >= 0; })) {
      for (auto byte = text.rbegin(); byte != text.rend(); ++byte) {
        pieces.push_back(id_of(*byte));
      }
      return;
    }
    if (unk_id_ < 0) {
      throw_bad("the text has a character outside the vocabulary, and there is no unknown token");
    }
    pieces.push_back(unk_id_);
  }

  ByteTrie trie_;
  std::vector<double> scores_;
  double unk_score_ = 0.0;
  int32_t unk_id_;
  bool byte_fallback_;
  std::array<int32_t, 256> fallback_ids_{};
  std::vector<bool> is_special_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(const UnigramConfig& config) {
  return std::make_unique<Unigram>(config);
}

}  // namespace mstar
