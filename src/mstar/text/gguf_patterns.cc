// Word patterns by the names that GGUF files give them. The patterns are those of the models'
// own tokenizer files.

#include <unordered_map>

#include "mstar/text/gguf_vocab.h"

namespace mstar {

namespace {

constexpr const char* kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

constexpr const char* kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

constexpr const char* kQwen2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

constexpr const char* kGpt4o =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

constexpr const char* kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

constexpr const char* kBloom = " ?[^(\\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+";

constexpr const char* kPunctuation = "[\\p{P}\\$\\+<=>\\^~\\|]+";

const std::unordered_map<std::string, GgufPattern>& patterns() {
  static const std::unordered_map<std::string, GgufPattern> kPatterns = [] {
    std::unordered_map<std::string, GgufPattern> out;
    const auto add = [&](std::initializer_list<const char*> names, GgufPattern pattern) {
      for (const char* name : names) {
        out[name] = pattern;
      }
    };
    add({"default"}, {{kPunctuation, kGpt2, "\\p{N}+", "[0-9][0-9][0-9]"}});
    add({"gpt-2",
         "gpt2",
         "phi-2",
         "jina-es",
         "jina-de",
         "jina-v2-es",
         "jina-v2-de",
         "jina-v2-code",
         "roberta-bpe",
         "mpt",
         "olmo",
         "jais",
         "trillion",
         "granite-docling"},
        {{kGpt2}});
    add({"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
        {{kLlama3}, true});
    add({"dbrx", "smaug-bpe"}, {{kLlama3}});
    add({"qwen2", "qwen3", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"}, {{kQwen2}});
    add({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
        {{"\\p{N}", kGpt2}});
    add({"gpt-4o", "llama4"}, {{kGpt4o}});
    add({"tekken"}, {{kTekken}, true});
    add({"falcon"}, {{kPunctuation, kGpt2, "[0-9][0-9][0-9]"}});
    add({"bloom", "poro-chat", "gpt3-finnish"}, {{kBloom}});
    add({"deepseek-coder"},
        {{"[\\r\\n]",
          "\\s?\\p{L}+",
          "\\s?\\p{P}+",
          "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+",
          "\\p{N}"}});
    add({"deepseek-v3"},
        {{"\\p{N}{1,3}",
          "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
          "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}});
    return out;
  }();
  return kPatterns;
}

}  // namespace

const GgufPattern* find_gguf_pattern(const std::string& name) {
  const auto found = patterns().find(name.empty() ? "default" : name);
  return found == patterns().end() ? nullptr : &found->second;
}

}  // namespace mstar
