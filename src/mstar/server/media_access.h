#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/server/http/fetch.h"

namespace mstar {

struct MediaAccessOptions {
  std::vector<std::string> allowed_domains{};  // "example.org", or "*.example.org" and below it
  std::string local_folder{};                  // "": no local files
  FetchOptions fetch{};
};

// Gets the media that requests name: data: URIs always, http(s): from allowed hosts, file: below an
// allowed folder. Thread-safe; const.
class MediaAccess {
 public:
  MediaAccess() = default;

  // Throws Error(kInvalidArgument) when the folder is none.
  explicit MediaAccess(MediaAccessOptions options);

  // The media item behind the URI, of the modality the field asks for (kNone: any, by content).
  // Throws
  // Error(kInvalidArgument) for what is not allowed or not there, and what fetch_url() and
  // media_from_uri() throw; `where` names the request's field.
  MediaItem get(std::string_view uri, Modality expected, std::string_view where) const;

  // The same; text without a scheme is bare base64.
  MediaItem get_or_base64(std::string_view text, Modality expected, std::string_view where) const;

  // Whether a text begins with one of the schemes that get() knows.
  static bool is_uri(std::string_view text);

 private:
  bool is_allowed(std::string_view host) const;
  std::string read_local(std::string_view uri, std::string_view where) const;

  MediaAccessOptions options_;
};

}  // namespace mstar
