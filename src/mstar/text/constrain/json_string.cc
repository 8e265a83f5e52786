#include "mstar/text/constrain/json_string.h"

#include <string_view>

namespace mstar::json_string {

namespace {

// Well-formed sequences: table 3-7 of the Unicode standard. Strings: RFC 8259, section 7.
constexpr Table make_table() {
  Table table{};
  const auto fill = [&](State from, int first, int last, State to) {
    for (int byte = first; byte <= last; ++byte) {
      table[from][static_cast<size_t>(byte)] = to;
    }
  };
  for (int state = 0; state < kNumStates; ++state) {
    fill(static_cast<State>(state), 0, 255, kReject);
  }
  fill(kBetween, 0x20, 0x7F, kBetween);
  fill(kBetween, '"', '"', kClose);
  fill(kBetween, '\\', '\\', kEscape);
  fill(kBetween, 0xC2, 0xDF, kTail1);
  fill(kBetween, 0xE0, 0xE0, kTailE0);
  fill(kBetween, 0xE1, 0xEF, kTail2);
  fill(kBetween, 0xED, 0xED, kTailED);
  fill(kBetween, 0xF0, 0xF0, kTailF0);
  fill(kBetween, 0xF1, 0xF3, kTail3);
  fill(kBetween, 0xF4, 0xF4, kTailF4);
  fill(kTail1, 0x80, 0xBF, kBetween);
  fill(kTail2, 0x80, 0xBF, kTail1);
  fill(kTail3, 0x80, 0xBF, kTail2);
  fill(kTailE0, 0xA0, 0xBF, kTail1);
  fill(kTailED, 0x80, 0x9F, kTail1);
  fill(kTailF0, 0x90, 0xBF, kTail2);
  fill(kTailF4, 0x80, 0x8F, kTail2);
  for (const char byte : std::string_view("\"\\/bfnrt")) {
    fill(kEscape, byte, byte, kBetween);
  }
  fill(kEscape, 'u', 'u', kHex1);
  const auto hex = [&](State from, State to) {
    fill(from, '0', '9', to);
    fill(from, 'a', 'f', to);
    fill(from, 'A', 'F', to);
  };
  hex(kHex1, kHex2);
  fill(kHex1, 'd', 'd', kHex2Low);
  fill(kHex1, 'D', 'D', kHex2Low);
  hex(kHex2, kHex3);
  fill(kHex2Low, '0', '7', kHex3);
  hex(kHex3, kHex4);
  hex(kHex4, kBetween);
  return table;
}

}  // namespace

constinit const Table kNext = make_table();

}  // namespace mstar::json_string
