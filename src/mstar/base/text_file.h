#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace mstar {

inline constexpr size_t kMaxTextFileBytes = size_t{256} << 20;

// The bytes of a regular file. Throws Error(kNotFound) when it cannot be read, Error(kTooLarge)
// when it is larger than `max_bytes`.
std::string read_text_file(const std::string& path, size_t max_bytes = kMaxTextFileBytes);

// The same, or nothing when there is no such file.
std::optional<std::string> read_text_file_if_there(const std::string& path,
                                                   size_t max_bytes = kMaxTextFileBytes);

}  // namespace mstar
