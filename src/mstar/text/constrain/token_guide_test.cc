// Masks over real vocabularies: exactly the tokens that the automaton could read, whatever was
// computed before; and an answer of random tokens is a document.
#include "mstar/text/constrain/token_guide.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/detokenizer.h"

namespace mstar {
namespace {

constexpr int kExtraIds = 5;  // logits without a token, as padded vocabularies have

std::shared_ptr<const Tokenizer> tokenizer(const std::string& name) {
  return Tokenizer::load(str_cat(MSTAR_SOURCE_DIR, "/tests/golden/tokenizer/models/", name));
}

struct Vocabulary {
  explicit Vocabulary(const std::string& name)
      : tokens(tokenizer(name)), size(static_cast<int64_t>(tokens->vocab_size()) + kExtraIds) {
    for (int32_t id = 0; id < static_cast<int32_t>(tokens->vocab_size()); ++id) {
      if (tokens->is_special(id)) {
        stop = id;
      }
    }
    grammars = std::make_unique<TokenGrammars>(tokens, size, std::vector<int32_t>{stop});
  }

  std::shared_ptr<const Tokenizer> tokens;
  int64_t size;
  int32_t stop = -1;
  std::unique_ptr<TokenGrammars> grammars;
};

std::vector<int32_t> allowed(TokenGuide& guide) {
  TokenMask mask(guide.num_words());
  guide.fill_mask(mask);
  std::vector<int32_t> ids;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint32_t left = mask[word]; left != 0; left &= left - 1) {
      ids.push_back(static_cast<int32_t>(word * 32) + __builtin_ctz(left));
    }
  }
  return ids;
}

// The slow twin: every token by itself.
std::vector<int32_t> allowed_slowly(const Vocabulary& vocabulary,
                                    const JsonGrammar& grammar,
                                    const std::vector<int32_t>& written) {
  JsonAutomaton automaton(grammar);
  JsonAutomaton::Threads threads{JsonAutomaton::begin()};
  const auto read = [&](JsonAutomaton::Threads from, int32_t id, bool is_first) {
    std::string bytes;
    vocabulary.tokens->append_token_bytes(id, is_first, bytes);
    for (const char byte : bytes) {
      JsonAutomaton::Threads next;
      for (const auto& thread : from) {
        automaton.step(thread, static_cast<uint8_t>(byte), 0, next);
      }
      from = std::move(next);
    }
    return bytes.empty() ? JsonAutomaton::Threads() : from;
  };
  for (size_t index = 0; index < written.size(); ++index) {
    threads = read(threads, written[index], index == 0);
  }
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.tokens->vocab_size()); ++id) {
    const bool may_end =
        std::ranges::any_of(threads, [&](const auto& thread) { return automaton.may_end(thread); });
    if (vocabulary.tokens->is_special(id)) {
      if (id == vocabulary.stop && may_end) {
        ids.push_back(id);
      }
      continue;
    }
    if (vocabulary.tokens->token(id).empty() || read(threads, id, false).empty()) {
      continue;
    }
    std::string first;
    std::string later;
    vocabulary.tokens->append_token_bytes(id, true, first);
    vocabulary.tokens->append_token_bytes(id, false, later);
    if (!written.empty() || first == later) {
      ids.push_back(id);
    }
  }
  return ids;
}

const std::vector<std::string> kSchemas = {
    R"({"type":"object"})",
    R"({"properties":{"name":{"type":"string","maxLength":6},"age":{"type":"integer","minimum":0,
        "maximum":130},"kind":{"enum":["cat","car","é"]}},"required":["name","kind"],
        "additionalProperties":false})",
    R"({"type":"array","items":{"anyOf":[{"type":"string","minLength":2},{"const":"a"},
        {"type":"number"}]},"maxItems":4})",
    R"({"properties":{"a":{"type":"null"}},"additionalProperties":{"type":"string"}})",
};

TEST(TokenGuide, MasksAreWhatTheAutomatonReads) {
  for (const char* name : {"gpt2", "mistral"}) {
    const Vocabulary vocabulary(name);
    for (const std::string& schema : kSchemas) {
      const auto grammar = vocabulary.grammars->get(Json::parse(schema), "schema");
      for (uint32_t seed = 0; seed < 6; ++seed) {
        std::mt19937 random(seed);
        TokenGuide guide(grammar);
        std::vector<int32_t> written;
        for (int step = 0; step < 40; ++step) {
          const std::vector<int32_t> ids = allowed(guide);
          ASSERT_FALSE(ids.empty());
          ASSERT_EQ(ids, allowed_slowly(vocabulary, *grammar->grammar, written))
              << name << " " << schema << " behind " << vocabulary.tokens->decode(written);
          const int32_t id = ids[random() % ids.size()];
          guide.accept(id);
          if (id == vocabulary.stop) {
            break;
          }
          written.push_back(id);
        }
      }
    }
  }
}

TEST(TokenGuide, RandomTokensMakeDocuments) {
  const Vocabulary vocabulary("gpt2");
  for (const std::string& schema : kSchemas) {
    if (schema == kSchemas[0] || schema == kSchemas[3]) {
      continue;  // random text could go on for ever
    }
    const auto grammar = vocabulary.grammars->get(Json::parse(schema), "schema");
    TokenGuide guide(grammar);
    for (uint32_t seed = 0; seed < 50; ++seed) {
      std::mt19937 random(seed);
      guide.reset();
      Detokenizer detokenizer(vocabulary.tokens);
      std::string text;
      int32_t id = -1;
      for (int step = 0; step < 3000 && id != vocabulary.stop; ++step) {
        const std::vector<int32_t> ids = allowed(guide);
        // Strings without a maximum end sooner or later.
        id = random() % 4 == 0 ? ids.front() : ids[random() % ids.size()];
        guide.accept(id);
        text += detokenizer.push(id);
      }
      ASSERT_EQ(id, vocabulary.stop) << text;
      EXPECT_NO_THROW(Json::parse(text)) << text;
    }
  }
}

TEST(TokenGuide, BehindTheEndThereIsOnlyTheStop) {
  const Vocabulary vocabulary("gpt2");
  TokenGuide guide(vocabulary.grammars->get(Json::parse(R"({"const":1})"), "schema"));
  guide.accept(*vocabulary.tokens->find_token("1"));
  EXPECT_EQ(allowed(guide), std::vector<int32_t>{vocabulary.stop});
  guide.accept(vocabulary.stop);
  EXPECT_EQ(allowed(guide), std::vector<int32_t>{vocabulary.stop});
}

TEST(TokenGuide, MasksAreRemembered) {
  const Vocabulary vocabulary("gpt2");
  const auto grammar = vocabulary.grammars->get(Json::parse(R"({"type":"string"})"), "schema");
  EXPECT_EQ(grammar, vocabulary.grammars->get(Json::parse(R"({"type":"string"})"), "schema"));
  TokenGuide guide(grammar);
  for (int step = 0; step < 20; ++step) {
    allowed(guide);
    guide.accept(*vocabulary.tokens->find_token(step == 0 ? "\"" : "a"));
  }
  EXPECT_EQ(guide.num_computed(), 2);  // before the string and inside it
  TokenGuide other(grammar);
  allowed(other);
  EXPECT_EQ(other.num_computed(), 0);
}

TEST(TokenGuide, AFullCacheBeginsAnew) {
  MaskCache cache(1000);
  for (uint64_t key = 0; key < 100; ++key) {
    cache.insert({key}, std::make_shared<const TokenMask>(32));
  }
  EXPECT_NE(cache.find({99}), nullptr);
  EXPECT_EQ(cache.find({0}), nullptr);
}

TEST(TokenGuide, VocabulariesOfWordsAreRefused) {
  const auto words = tokenizer("bert");
  TokenGrammars grammars(words, static_cast<int64_t>(words->vocab_size()), {1});
  EXPECT_THROW(grammars.get(Json::parse("{}"), "schema"), Error);
  const auto bytes = tokenizer("gpt2");
  TokenGrammars endless(bytes, static_cast<int64_t>(bytes->vocab_size()), {});
  EXPECT_THROW(endless.get(Json::parse("{}"), "schema"), Error);
}

}  // namespace
}  // namespace mstar
