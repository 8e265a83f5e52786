#include "mstar/text/tokenizer.h"

#include <algorithm>
#include <mutex>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/tokenizer_parts.h"
#include "mstar/text/utf8.h"

namespace mstar {

// Working memory of one encode call: caches of words live here and are used by one call at a time.
struct Tokenizer::Scratch {
  ModelScratch model;
  Regex::Matcher matcher;
  WordList list;
  std::vector<TextPart> parts;
  std::vector<TextPart> normalized_parts;
  std::string normalized;
};

// Scratch that is not in use. As many exist as calls ever ran at once.
struct Tokenizer::Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Scratch>> free;
};

class Tokenizer::Lease {
 public:
  explicit Lease(Pool& pool) : pool_(pool) {
    {
      const std::lock_guard lock(pool.mutex);
      if (!pool.free.empty()) {
        scratch_ = std::move(pool.free.back());
        pool.free.pop_back();
      }
    }
    if (scratch_ == nullptr) {
      scratch_ = std::make_unique<Scratch>();
    }
  }

  ~Lease() {
    const std::lock_guard lock(pool_.mutex);
    pool_.free.push_back(std::move(scratch_));
  }

  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Scratch& operator*() { return *scratch_; }

 private:
  Pool& pool_;
  std::unique_ptr<Scratch> scratch_;
};

struct Tokenizer::Job {
  AddedTokenFinder::Rules rules;  // for normalised text
  bool find_normalized = true;
  bool no_special_ids = false;
  Scratch& scratch;
  std::vector<int32_t>& ids;
};

namespace {

// Tokens of `parts` for which `take` says so, found by the text the normalizer makes of them if
// `normalize`.
template <typename Take>
AddedTokenFinder make_finder(const TokenizerParts& parts, const Take& take, bool normalize) {
  std::vector<AddedToken> tokens;
  Regex::Matcher matcher;
  for (const AddedToken& token : parts.added) {
    if (!token.content.empty() && take(token)) {
      tokens.push_back(token);
      if (normalize && parts.normalizer != nullptr) {
        parts.normalizer->apply(tokens.back().content, matcher);
      }
    }
  }
  return AddedTokenFinder(std::move(tokens));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TokenizerParts> parts)
    : parts_(std::move(parts)), pool_(std::make_unique<Pool>()) {
  MSTAR_CHECK(parts_->model != nullptr && parts_->decoder != nullptr, "parts are missing");
  TokenizerParts& p = *parts_;
  for (const AddedToken& token : p.added) {
    MSTAR_CHECK(token.id >= 0 && token.id <= kMaxTokenId, "id=", token.id);
    const auto id = static_cast<size_t>(token.id);
    p.tokens.resize(std::max(p.tokens.size(), id + 1));
    p.tokens[id] = token.content;
  }
  p.is_special.assign(p.tokens.size(), false);
  for (const AddedToken& token : p.added) {
    p.is_special[static_cast<size_t>(token.id)] = token.special;
    p.lookup.add(token.content, token.id);
  }
  size_t num_bytes = 0;
  for (const std::string& token : p.tokens) {
    num_bytes += token.size();
  }
  p.lookup.reserve(p.tokens.size(), num_bytes);
  for (size_t id = 0; id < p.tokens.size(); ++id) {
    if (!p.tokens[id].empty()) {
      p.lookup.add(p.tokens[id], static_cast<int32_t>(id));
    }
  }
  p.model->set_special(p.is_special);
  p.raw_finder = make_finder(
      p, [](const AddedToken& t) { return !t.normalized; }, false);
  p.normalized_finder = make_finder(
      p, [](const AddedToken& t) { return t.normalized; }, true);
  p.marked_finder = make_finder(
      p, [](const AddedToken& t) { return t.special || !t.normalized; }, false);
}

Tokenizer::~Tokenizer() = default;

std::string_view Tokenizer::checked(std::string_view text, std::string& mended) const {
  if (text.size() > kMaxTextBytes) {
    throw Error(ErrorCode::kTooLarge,
                str_cat("[tokenizer] text of ",
                        text.size(),
                        " bytes, at most ",
                        kMaxTextBytes,
                        " are encoded"));
  }
  if (is_valid_utf8(text)) {
    return text;
  }
  mended = sanitize_utf8(text);
  return mended;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string mended;
  text = checked(text, mended);
  Lease lease(*pool_);
  Scratch& scratch = *lease;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  const AddedTokenFinder::Rules rules = {.specials_are_text =
                                             options.added_tokens != AddedTokens::kRecognised};
  const Job job = {.rules = rules,
                   .find_normalized = options.added_tokens != AddedTokens::kAllAsText,
                   .no_special_ids = options.no_special_ids,
                   .scratch = scratch,
                   .ids = ids};
  if (options.add_template) {
    ids = parts_->post_processor.prefix;
  }
  scratch.parts.clear();
  if (options.added_tokens == AddedTokens::kAllAsText) {
    if (!text.empty()) {
      scratch.parts.push_back({{0, text.size()}, -1});
    }
  } else {
    parts_->raw_finder.split(text, rules, scratch.parts);
  }
  for (const TextPart& part : scratch.parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      encode_part(text.substr(part.range.begin, part.range.end - part.range.begin),
                  part.range.begin == 0,
                  job);
    }
  }
  if (options.add_template) {
    const auto& suffix = parts_->post_processor.suffix;
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

std::vector<int32_t> Tokenizer::encode(const MarkedText& marked) const {
  std::string mended;
  const std::string_view text = checked(marked.text, mended);
  // Mending moves bytes; then no byte can be told to be the template's.
  const std::vector<TextRange> everything = {{0, text.size()}};
  const std::vector<TextRange>& user = mended.empty() ? marked.user : everything;
  Lease lease(*pool_);
  Scratch& scratch = *lease;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  scratch.parts.clear();
  parts_->marked_finder.split(text, {.user = &user}, scratch.parts);
  for (const TextPart& part : scratch.parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    // What is special has been found above, by position; later steps must not find more.
    const bool has_user_text = overlaps(part.range, user);
    const Job job = {.rules = {.specials_are_text = true},
                     .find_normalized = true,
                     .no_special_ids = has_user_text,
                     .scratch = scratch,
                     .ids = ids};
    encode_part(text.substr(part.range.begin, part.range.end - part.range.begin),
                part.range.begin == 0,
                job);
  }
  return ids;
}

// Text between tokens found in the text as given: normalised, searched again, encoded.
void Tokenizer::encode_part(std::string_view text, bool at_start, const Job& job) const {
  Scratch& scratch = job.scratch;
  if (parts_->normalizer != nullptr) {
    scratch.normalized.assign(text);
    parts_->normalizer->apply(scratch.normalized, scratch.matcher);
    text = scratch.normalized;
  }
  if (!job.find_normalized || parts_->normalized_finder.empty()) {
    encode_words(text, at_start, job);
    return;
  }
  auto& parts = scratch.normalized_parts;
  parts.clear();
  parts_->normalized_finder.split(text, job.rules, parts);
  for (const TextPart& part : parts) {
    if (part.id >= 0) {
      job.ids.push_back(part.id);
    } else {
      encode_words(text.substr(part.range.begin, part.range.end - part.range.begin),
                   at_start && part.range.begin == 0,
                   job);
    }
  }
}

void Tokenizer::encode_words(std::string_view text, bool at_start, const Job& job) const {
  if (text.empty()) {
    return;
  }
  WordList& list = job.scratch.list;
  list.storage.clear();
  list.words.assign(1, {text, at_start});
  if (parts_->pre_tokenizer != nullptr) {
    parts_->pre_tokenizer->apply(list, job.scratch.matcher);
  }
  for (const Word& word : list.words) {
    parts_->model->encode(word.text, job.no_special_ids, job.scratch.model, job.ids);
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const std::string_view text = token(id);
    if (!text.empty() && !(skip_special && is_special(id))) {
      tokens.emplace_back(text);
    }
  }
  parts_->decoder->apply(tokens);
  std::string out;
  for (const std::string& text : tokens) {
    out += text;
  }
  return out;
}

size_t Tokenizer::vocab_size() const {
  return parts_->tokens.size();
}

std::string_view Tokenizer::token(int32_t id) const {
  const bool known = id >= 0 && static_cast<size_t>(id) < parts_->tokens.size();
  return known ? std::string_view(parts_->tokens[static_cast<size_t>(id)]) : std::string_view();
}

std::optional<int32_t> Tokenizer::find_token(std::string_view text) const {
  const int32_t id = parts_->lookup.find(text);
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < parts_->is_special.size() &&
         parts_->is_special[static_cast<size_t>(id)];
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return parts_->added;
}

const std::vector<int32_t>& Tokenizer::template_prefix() const {
  return parts_->post_processor.prefix;
}

const std::vector<int32_t>& Tokenizer::template_suffix() const {
  return parts_->post_processor.suffix;
}

bool Tokenizer::can_stream() const {
  return parts_->decoder->can_stream();
}

void Tokenizer::append_token_bytes(int32_t id, bool is_first, std::string& out) const {
  std::string bytes(token(id));
  parts_->decoder->stream(bytes, is_first);
  out += bytes;
}

}  // namespace mstar
