#pragma once

#include <optional>
#include <string>

namespace mstar {

// The bytes of a file. Throws Error(kNotFound) when it cannot be read, Error(kTooLarge) when it is
// larger than `max_bytes`.
std::string read_text_file(const std::string& path, size_t max_bytes);

// The same, or nothing when there is no such file.
std::optional<std::string> read_text_file_if_there(const std::string& path, size_t max_bytes);

}  // namespace mstar
