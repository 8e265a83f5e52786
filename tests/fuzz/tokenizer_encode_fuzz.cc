// Any bytes as text for each of the small tokenizers of tests/golden/tokenizer, which
// MSTAR_FUZZ_TOKENIZERS (a folder) holds. All modes encode; user text gives no special token;
// byte-level text comes back as it was, broken bytes mended; streamed and whole decoding agree.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "mstar/text/detokenizer.h"
#include "mstar/text/tokenizer.h"
#include "mstar/text/utf8.h"

namespace {

using mstar::Tokenizer;

std::vector<std::shared_ptr<const Tokenizer>> load_all() {
  const char* folder = std::getenv("MSTAR_FUZZ_TOKENIZERS");
  const std::string base = folder == nullptr ? "tests/golden/tokenizer/models" : folder;
  std::vector<std::shared_ptr<const Tokenizer>> out;
  for (const char* name : {"gpt2", "gemma", "mistral", "t5", "clip", "bert", "roberta"}) {
    out.push_back(Tokenizer::load(base + "/" + name));
  }
  return out;
}

void expect(bool holds) {
  if (!holds) {
    __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto kTokenizers = load_all();
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : kTokenizers) {
    const auto ids = tokenizer->encode(text);
    tokenizer->encode(text, {.added_tokens = mstar::AddedTokens::kSpecialsAsText});
    tokenizer->encode(text, {.added_tokens = mstar::AddedTokens::kAllAsText});
    const mstar::MarkedText marked{text, {{0, text.size()}}};
    for (const int32_t id : text.empty() ? std::vector<int32_t>() : tokenizer->encode(marked)) {
      const std::string_view token = tokenizer->token(id);
      expect(!tokenizer->is_special(id) || token == "<unk>" || token == "[UNK]" ||
             token == "<|endoftext|>");  // each the unknown token of its tokenizer
    }
    mstar::Detokenizer detokenizer(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) {
      streamed += detokenizer.push(id);
    }
    streamed += detokenizer.finish();
    expect(streamed == tokenizer->decode(ids));
  }
  expect(kTokenizers[0]->decode(kTokenizers[0]->encode(text)) == mstar::sanitize_utf8(text));
  return 0;
}
