#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

namespace mstar {

namespace internal {

inline void append_piece(std::string& out, std::string_view piece) {
  out.append(piece);
}

inline void append_piece(std::string& out, const char* piece) {
  out.append(piece);
}

inline void append_piece(std::string& out, char piece) {
  out.push_back(piece);
}

inline void append_piece(std::string& out, bool piece) {
  out.append(piece ? "true" : "false");
}

template <typename T>

requires((std::is_integral_v<T> || std::is_floating_point_v<T>)&&!std::is_same_v<T, bool> &&
         !std::is_same_v<T, char>) void append_piece(std::string& out, T piece) {
  char buffer[48];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), piece);
  out.append(buffer, result.ptr);
}

}  // namespace internal

// Joins strings, characters and numbers; numbers in the shortest form that reads back the same.
template <typename... Pieces>
std::string str_cat(const Pieces&... pieces) {
  std::string out;
  (internal::append_piece(out, pieces), ...);
  return out;
}

// The items' text with `separator` between them; each item is anything str_cat takes.
template <typename Range>
std::string str_join(const Range& items, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) {
      out.append(separator);
    }
    first = false;
    internal::append_piece(out, item);
  }
  return out;
}

}  // namespace mstar
