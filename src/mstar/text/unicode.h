#pragma once

// Properties and normal forms of Unicode text, as the tokenizers library and Python see them.
// All functions take valid UTF-8 or code points. Thread-safe.

#include <cstdint>
#include <string>
#include <string_view>

namespace mstar {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// The text in the normal form. Text that certainly is in NFC already is copied without work.
std::string normalize_unicode(std::string_view text, NormalForm form);

// Property White_Space.
bool is_unicode_space(uint32_t code_point);

bool is_unicode_punctuation(uint32_t code_point);  // general category P*
bool is_unicode_mark(uint32_t code_point);         // general category M*
bool is_nonspacing_mark(uint32_t code_point);      // general category Mn
bool is_unicode_number(uint32_t code_point);       // general category N*
bool is_unicode_letter(uint32_t code_point);       // general category L*
bool is_unicode_digit(uint32_t code_point);        // general category Nd
bool is_unicode_control(uint32_t code_point);      // Cc, Cf, Co, Cs
bool is_unassigned(uint32_t code_point);           // Cn
bool is_unicode_upper(uint32_t code_point);        // has a lower-case form
bool is_unicode_lower(uint32_t code_point);        // has an upper-case form

// True for what a regular expression's \w matches: letters, marks, decimal digits, connectors.
bool is_word_character(uint32_t code_point);

// Full lower- and upper-case mapping, without rules that look at neighbours.
void append_lower(std::string& out, uint32_t code_point);
void append_upper(std::string& out, uint32_t code_point);
void append_title(std::string& out, uint32_t code_point);
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);

}  // namespace mstar
