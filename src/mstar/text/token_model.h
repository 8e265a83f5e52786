#pragma once

// The model step of a tokenizer: turns one word into token ids.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mstar {

// Remembers the ids of short words: most words of a text come again. One thread, one model.
class WordCache {
 public:
  WordCache();

  // Appends the word's ids and returns true when they are known.
  bool find(std::string_view word, uint64_t hash, std::vector<int32_t>& out) const;

  // Remembers the ids, unless word or ids are too long.
  void insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids);

 private:
  static constexpr size_t kNumEntries = size_t{1} << 14;
  static constexpr size_t kMaxWordBytes = 26;
  static constexpr size_t kMaxIds = 8;

  struct Entry {
    uint32_t tag = 0;
    uint8_t word_size = 0;  // 0: free
    uint8_t num_ids = 0;
    char word[kMaxWordBytes];
    int32_t ids[kMaxIds];
  };

  std::vector<Entry> entries_;
};

// Working memory of one thread for one model.
struct ModelScratch {
  WordCache cache;
  std::vector<int32_t> symbols;
  std::vector<uint32_t> ranks;
  std::vector<double> scores;
  std::vector<std::pair<uint32_t, int32_t>> path;
  std::string text;
};

// Immutable, may be shared by threads; scratch belongs to the calling thread.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the ids of `word` (not empty). `no_special`: a piece whose id is special is never
  // taken, for text that must not forge control tokens.
  // Throws Error(kInvalidArgument) when the word cannot be written and there is no unknown token.
  virtual void encode(std::string_view word,
                      bool no_special,
                      ModelScratch& scratch,
                      std::vector<int32_t>& out) const = 0;

  // Which ids are special, by id; set once before use.
  virtual void set_special(const std::vector<bool>& is_special) = 0;
};

// Text of each token of the model's vocabulary with its id.
using VocabularyEntries = std::vector<std::pair<std::string, int32_t>>;

struct BpeConfig {
  VocabularyEntries vocabulary;

  // Pairs in order of preference. Equal `rank` only where the order between them is by position.
  struct Merge {
    std::string_view left;
    std::string_view right;
    uint32_t rank;
  };

  std::vector<Merge> merges;
  std::string unk_token;                  // empty: unknown characters vanish
  std::string continuing_subword_prefix;  // before each symbol but a word's first
  std::string end_of_word_suffix;         // behind a word's last symbol
  bool fuse_unk = false;                  // a run of unknown characters is one unknown token
  bool byte_fallback = false;             // unknown characters become tokens <0x00> … <0xFF>
  bool ignore_merges = false;             // a word that is a token is that token
  bool words_are_bytes = false;           // vocabulary in the byte alphabet, words in raw bytes
};

// Byte-pair encoding. Throws Error(kInvalidArgument) when a merge names an unknown token.
std::unique_ptr<TokenModel> make_bpe(const BpeConfig& config);

struct UnigramConfig {
  std::vector<std::pair<std::string, double>> pieces;  // by id, with log probability
  int32_t unk_id = -1;                                 // -1: unknown characters are an error
  bool byte_fallback = false;
};

// SentencePiece's unigram model: the segmentation of highest probability.
std::unique_ptr<TokenModel> make_unigram(const UnigramConfig& config);

struct WordPieceConfig {
  VocabularyEntries vocabulary;
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  size_t max_input_chars_per_word = 100;
};

// Greedy longest match from the left.
std::unique_ptr<TokenModel> make_word_piece(const WordPieceConfig& config);

// Whole words only.
std::unique_ptr<TokenModel> make_word_level(const VocabularyEntries& vocabulary,
                                            const std::string& unk_token);

}  // namespace mstar
