#include "mstar/base/text_file.h"

#include <filesystem>
#include <fstream>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

std::optional<std::string> read_text_file_if_there(const std::string& path, size_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return std::nullopt;  // a device or a pipe has no size to check
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return std::nullopt;
  }
  if (size > max_bytes) {
    throw Error(ErrorCode::kTooLarge,
                str_cat("[", path, "] has ", size, " bytes, at most ", max_bytes, " are read"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string bytes(static_cast<size_t>(size), '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (!file) {
    throw Error(ErrorCode::kNotFound, str_cat("[", path, "] cannot be read"));
  }
  return bytes;
}

std::string read_text_file(const std::string& path, size_t max_bytes) {
  auto bytes = read_text_file_if_there(path, max_bytes);
  if (!bytes) {
    throw Error(ErrorCode::kNotFound, str_cat("[", path, "] is not there"));
  }
  return std::move(*bytes);
}

}  // namespace mstar
