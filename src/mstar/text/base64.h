#pragma once

#include <string>
#include <string_view>

namespace mstar {

// Bytes of standard base64 with or without padding; throws Error(kInvalidArgument) starting with
// [where] on any other character.
std::string decode_base64(std::string_view text, std::string_view where);

}  // namespace mstar
