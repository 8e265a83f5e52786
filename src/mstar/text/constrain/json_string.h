#pragma once

#include <array>
#include <cstdint>

namespace mstar {

// The inside of a JSON string byte by byte: well-formed UTF-8 without control characters, escapes
// without surrogates. A table of states over bytes.
namespace json_string {

enum State : uint8_t {
  kBetween,  // characters
  kEscape,   // behind a backslash
  kHex1,     // behind \u: the first digit
  kHex2,     // the second; any
  kHex2Low,  // the second behind d: not of a surrogate
  kHex3,
  kHex4,
  kTail1,  // one more byte of a character
  kTail2,
  kTail3,
  kTailE0,  // second bytes that have a range of their own
  kTailED,
  kTailF0,
  kTailF4,
  kNumStates,
  kClose,  // not a state: the closing quote
  kReject,
};

using Table = std::array<std::array<uint8_t, 256>, kNumStates>;

extern const Table kNext;

}  // namespace json_string
}  // namespace mstar
