#include "mstar/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr uint32_t kMatchLimit = 20'000'000;
constexpr size_t kJitStackMax = 8u << 20;
constexpr size_t kMaxPatternBytes = 64u << 10;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

std::string error_text(int code) {
  PCRE2_UCHAR buffer[160];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Impl {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
};

struct Regex::Matcher::Impl {
  // Offsets of the whole match only: groups are never asked for.
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = nullptr;

  ~Impl() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

Regex::Matcher::Matcher() : impl_(std::make_unique<Impl>()) {
  MSTAR_CHECK(impl_->data != nullptr && impl_->context != nullptr, "out of memory");
  pcre2_set_match_limit(impl_->context, kMatchLimit);
}

Regex::Matcher::~Matcher() = default;

Regex::Regex(std::string_view pattern, std::string_view where) : impl_(std::make_unique<Impl>()) {
  if (pattern.size() > kMaxPatternBytes) {
    throw Error(
        ErrorCode::kTooLarge,
        str_cat("[", where, "] pattern of ", pattern.size(), " bytes, at most ", kMaxPatternBytes));
  }
  const std::string translated = translate_regex(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                  translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                  &error,
                                  &offset,
                                  nullptr));
  if (impl_->code == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[",
                        where,
                        "] pattern \"",
                        pattern,
                        "\": ",
                        error_text(error),
                        " at byte ",
                        offset,
                        " of its translation \"",
                        translated,
                        "\""));
  }
  // Without machine code (not every processor has it) pcre2_match interprets: slower, the same.
  pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;

bool Regex::find(std::string_view text, size_t start, Matcher& matcher, MatchRange& match) const {
  auto& state = *matcher.impl_;
  const auto run = [&] {
    return pcre2_match(impl_->code.get(),
                       reinterpret_cast<PCRE2_SPTR>(text.data()),
                       text.size(),
                       start,
                       PCRE2_NO_UTF_CHECK,
                       state.data,
                       state.context);
  };
  int result = run();
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && state.stack == nullptr) {
    state.stack = pcre2_jit_stack_create(64u << 10, kJitStackMax, nullptr);
    pcre2_jit_stack_assign(state.context, nullptr, state.stack);
    result = run();
  }
  if (result == PCRE2_ERROR_NOMATCH) {
    return false;
  }
  if (result < 0) {
    throw Error(ErrorCode::kTooLarge,
                str_cat("[regex] the tokenizer's pattern gives up on this text (",
                        error_text(result),
                        "); send less repetitive text"));
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(state.data);
  match = {offsets[0], offsets[1]};
  return true;
}

}  // namespace mstar
