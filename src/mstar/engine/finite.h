#pragma once

#include <string_view>

namespace mstar {

// What the message of every Error says that is about NaN or infinity: failures of that kind are
// counted apart.
inline constexpr std::string_view kNotFinite = "a value is not finite";

}  // namespace mstar
