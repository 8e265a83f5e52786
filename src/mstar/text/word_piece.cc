#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/token_model.h"
#include "mstar/text/utf8.h"
#include "mstar/text/vocabulary.h"

namespace mstar {

namespace {

int32_t find_unknown(const Vocabulary& vocabulary, const std::string& token) {
  const int32_t id = vocabulary.find(token);
  if (id < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        str_cat("[tokenizer.json model] unk_token \"", token, "\" is not in the vocabulary"));
  }
  return id;
}

void fill(Vocabulary& vocabulary, const VocabularyEntries& entries) {
  for (const auto& [text, id] : entries) {
    vocabulary.add(text, id);
  }
}

// Ids that are special count as not in the vocabulary when the text must not forge them.
class Lookup {
 public:
  explicit Lookup(const VocabularyEntries& entries) { fill(vocabulary_, entries); }

  int32_t find(std::string_view text, bool no_special) const {
    const int32_t id = vocabulary_.find(text);
    const bool hidden = no_special && id >= 0 && static_cast<size_t>(id) < is_special_.size() &&
                        is_special_[static_cast<size_t>(id)];
    return hidden ? -1 : id;
  }

  const Vocabulary& vocabulary() const { return vocabulary_; }

  void set_special(const std::vector<bool>& is_special) { is_special_ = is_special; }

 private:
  Vocabulary vocabulary_;
  std::vector<bool> is_special_;
};

class WordPiece final : public TokenModel {
 public:
  explicit WordPiece(const WordPieceConfig& config)
      : lookup_(config.vocabulary),
        prefix_(config.continuing_subword_prefix),
        max_chars_(config.max_input_chars_per_word),
        unk_id_(find_unknown(lookup_.vocabulary(), config.unk_token)) {}

  void encode(std::string_view word,
              bool no_special,
              ModelScratch& scratch,
              std::vector<int32_t>& out) const override {
    if (count_code_points(word) > max_chars_) {
      out.push_back(unk_id_);
      return;
    }
    const size_t before = out.size();
    for (size_t start = 0; start < word.size();) {
      size_t end = word.size();
      int32_t id = -1;
      while (end > start) {
        scratch.text.assign(start > 0 ? prefix_ : "");
        scratch.text.append(word.substr(start, end - start));
        id = lookup_.find(scratch.text, no_special);
        if (id >= 0) {
          break;
        }
        end = previous_code_point(word, end);
      }
      if (id < 0) {
        // One part that is not known makes the whole word unknown.
        out.resize(before);
        out.push_back(unk_id_);
        return;
      }
      out.push_back(id);
      start = end;
    }
  }

  void set_special(const std::vector<bool>& is_special) override {
    lookup_.set_special(is_special);
  }

 private:
  Lookup lookup_;
  std::string prefix_;
  size_t max_chars_;
  int32_t unk_id_;
};

class WordLevel final : public TokenModel {
 public:
  WordLevel(const VocabularyEntries& vocabulary, const std::string& unk_token)
      : lookup_(vocabulary),
        unk_id_(unk_token.empty() ? -1 : find_unknown(lookup_.vocabulary(), unk_token)) {}

  void encode(std::string_view word,
              bool no_special,
              ModelScratch&,
              std::vector<int32_t>& out) const override {
    const int32_t id = lookup_.find(word, no_special);
    if (id < 0 && unk_id_ < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "[tokenizer] the text has a word outside the vocabulary, and there is no unknown "
                  "token");
    }
    out.push_back(id < 0 ? unk_id_ : id);
  }

  void set_special(const std::vector<bool>& is_special) override {
    lookup_.set_special(is_special);
  }

 private:
  Lookup lookup_;
  int32_t unk_id_;
};

}  // namespace

std::unique_ptr<TokenModel> make_word_piece(const WordPieceConfig& config) {
  return std::make_unique<WordPiece>(config);
}

std::unique_ptr<TokenModel> make_word_level(const VocabularyEntries& vocabulary,
                                            const std::string& unk_token) {
  return std::make_unique<WordLevel>(vocabulary, unk_token);
}

}  // namespace mstar
