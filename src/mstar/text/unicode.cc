#include "mstar/text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

utf8proc_category_t category(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

// True when the code point can neither decompose, compose nor be reordered in NFC.
bool is_inert_in_nfc(uint32_t code_point) {
  if (code_point < 0x300) {
    return true;  // Latin letters compose only with marks, and those are not inert
  }
  if (code_point >= 0xAC00 && code_point <= 0xD7A3) {
    return true;  // Hangul syllables compose only with conjoining letters, which are not inert
  }
  if (code_point >= 0x1100 && code_point <= 0x11FF) {
    return false;
  }
  const utf8proc_property_t* property =
      utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
  return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
         property->comb_index == UINT16_MAX;
}

bool is_surely_nfc(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    if (!is_inert_in_nfc(point.value)) {
      return false;
    }
    i += point.num_bytes;
  }
  return true;
}

// Mappings to several code points, which the simple tables leave out.
struct SpecialCase {
  uint32_t code_point;
  std::string_view mapped;
};

constexpr SpecialCase kUpper[] = {
    {0xDF, "SS"},
    {0x149, "\u02BCN"},
    {0x1F0, "J\u030C"},
    {0x390, "\u0399\u0308\u0301"},
    {0x3B0, "\u03A5\u0308\u0301"},
    {0x587, "\u0535\u0552"},
    {0x1E96, "H\u0331"},
    {0x1E97, "T\u0308"},
    {0x1E98, "W\u030A"},
    {0x1E99, "Y\u030A"},
    {0x1E9A, "A\u02BE"},
    {0xFB00, "FF"},
    {0xFB01, "FI"},
    {0xFB02, "FL"},
    {0xFB03, "FFI"},
    {0xFB04, "FFL"},
    {0xFB05, "ST"},
    {0xFB06, "ST"},
};

template <uint32_t (*Map)(uint32_t)>
void append_simple(std::string& out, uint32_t code_point) {
  append_utf8(out, Map(code_point));
}

uint32_t simple_lower(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

uint32_t simple_upper(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

uint32_t simple_title(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

template <void (*Append)(std::string&, uint32_t)>
std::string map_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    Append(out, point.value);
    i += point.num_bytes;
  }
  return out;
}

}  // namespace

std::string normalize_unicode(std::string_view text, NormalForm form) {
  if (is_ascii(text) || (form == NormalForm::kNfc && is_surely_nfc(text))) {
    return std::string(text);
  }
  int options = UTF8PROC_STABLE;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) {
    options |= UTF8PROC_COMPAT;
  }
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()),
                                             &mapped,
                                             static_cast<utf8proc_option_t>(options));
  if (size < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[unicode] text cannot be normalised: ", utf8proc_errmsg(size)));
  }
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  std::free(mapped);  // NOLINT: utf8proc allocates with malloc
  return out;
}

bool is_unicode_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_unicode_punctuation(uint32_t code_point) {
  const auto c = category(code_point);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_unicode_mark(uint32_t code_point) {
  const auto c = category(code_point);
  return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(uint32_t code_point) {
  return category(code_point) == UTF8PROC_CATEGORY_MN;
}

bool is_unicode_number(uint32_t code_point) {
  const auto c = category(code_point);
  return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool is_unicode_letter(uint32_t code_point) {
  const auto c = category(code_point);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_unicode_digit(uint32_t code_point) {
  return category(code_point) == UTF8PROC_CATEGORY_ND;
}

bool is_unicode_control(uint32_t code_point) {
  const auto c = category(code_point);
  return c >= UTF8PROC_CATEGORY_CC && c <= UTF8PROC_CATEGORY_CO;
}

bool is_unassigned(uint32_t code_point) {
  return category(code_point) == UTF8PROC_CATEGORY_CN;
}

bool is_unicode_upper(uint32_t code_point) {
  return simple_lower(code_point) != code_point;
}

bool is_unicode_lower(uint32_t code_point) {
  return simple_upper(code_point) != code_point;
}

bool is_word_character(uint32_t code_point) {
  switch (category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default:
      // Circled letters are alphabetic; the joiners belong to words.
      return (code_point >= 0x24B6 && code_point <= 0x24E9) || code_point == 0x200C ||
             code_point == 0x200D || (code_point >= 0x1F130 && code_point <= 0x1F149) ||
             (code_point >= 0x1F150 && code_point <= 0x1F169) ||
             (code_point >= 0x1F170 && code_point <= 0x1F189);
  }
}

void append_lower(std::string& out, uint32_t code_point) {
  if (code_point == 0x130) {
    out.append("i\u0307");
    return;
  }
  append_simple<simple_lower>(out, code_point);
}

void append_upper(std::string& out, uint32_t code_point) {
  if (code_point >= 0xDF) {
    for (const SpecialCase& special : kUpper) {
      if (special.code_point == code_point) {
        out.append(special.mapped);
        return;
      }
    }
  }
  append_simple<simple_upper>(out, code_point);
}

void append_title(std::string& out, uint32_t code_point) {
  append_simple<simple_title>(out, code_point);
}

std::string to_lower(std::string_view text) {
  return map_text<append_lower>(text);
}

std::string to_upper(std::string_view text) {
  return map_text<append_upper>(text);
}

}  // namespace mstar
