#include "mstar/server/media_access.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/message.h"

namespace mstar {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(std::string_view where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[request] \"", where, "\": ", what));
}

bool has_scheme(std::string_view uri, std::string_view scheme) {
  return uri.size() >= scheme.size() && equals_ignoring_case(uri.substr(0, scheme.size()), scheme);
}

}  // namespace

MediaAccess::MediaAccess(MediaAccessOptions options) : options_(std::move(options)) {
  for (std::string& domain : options_.allowed_domains) {
    domain = lower_ascii(domain);
  }
  if (!options_.local_folder.empty()) {
    std::error_code error;
    const fs::path folder = fs::canonical(options_.local_folder, error);
    if (error || !fs::is_directory(folder)) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[media] \"", options_.local_folder, "\" is no folder"));
    }
    options_.local_folder = folder.string();
  }
}

bool MediaAccess::is_allowed(std::string_view host) const {
  return std::ranges::any_of(options_.allowed_domains, [&](std::string_view domain) {
    return domain.starts_with("*.") ? host.ends_with(domain.substr(1)) : host == domain;
  });
}

// Links are resolved before the folder is compared, so none leads out of it.
std::string MediaAccess::read_local(std::string_view uri, std::string_view where) const {
  constexpr std::string_view kScheme = "file:";
  std::string_view rest = uri.substr(kScheme.size());
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    if (has_scheme(rest, "localhost/")) {
      rest.remove_prefix(std::string_view("localhost").size());
    }
  }
  const auto path = percent_decode(rest, false);
  if (!path || !path->starts_with('/') || path->find('\0') != std::string::npos) {
    refuse(where, "expected file:///PATH");
  }
  // One message for all that is not allowed or not there: nobody learns what files exist.
  const std::string problem = "there is no such file that may be read";
  std::error_code error;
  const fs::path real = fs::canonical(*path, error);
  if (error || !fs::is_regular_file(real, error)) {
    refuse(where, problem);
  }
  const fs::path folder = options_.local_folder;
  const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), real.begin(), real.end());
  if (end != folder.end()) {
    refuse(where, problem);
  }
  return read_text_file(real.string(), options_.fetch.max_bytes);
}

MediaItem MediaAccess::get(std::string_view uri, Modality expected, std::string_view where) const {
  uri = trim(uri);
  if (!options_.allowed_domains.empty() &&
      (has_scheme(uri, "http:") || has_scheme(uri, "https:"))) {
    try {
      return media_from_bytes(
          fetch_url(
              uri, [this](std::string_view host) { return is_allowed(host); }, options_.fetch),
          expected,
          where);
    } catch (const Error& error) {
      // What another server does is the client's to know, and no reason to call this one broken.
      const bool is_outside = error.code() == ErrorCode::kUnavailable;
      throw Error(is_outside ? ErrorCode::kInvalidArgument : error.code(),
                  str_cat("[request] \"", where, "\": ", error.what()));
    }
  }
  if (!options_.local_folder.empty() && has_scheme(uri, "file:")) {
    return media_from_bytes(read_local(uri, where), expected, where);
  }
  return media_from_uri(uri, expected, where);
}

bool MediaAccess::is_uri(std::string_view text) {
  text = trim(text);
  return std::ranges::any_of(std::array<std::string_view, 4>{"data:", "http:", "https:", "file:"},
                             [&](std::string_view scheme) { return has_scheme(text, scheme); });
}

MediaItem MediaAccess::get_or_base64(std::string_view text,
                                     Modality expected,
                                     std::string_view where) const {
  return is_uri(text) ? get(text, expected, where) : media_from_base64(text, expected, where);
}

}  // namespace mstar
