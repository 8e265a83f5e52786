#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mstar/engine/model.h"

// Bytes in documents: base64 in both directions, media that clients hand in. Thread-safe.
namespace mstar {

std::string encode_base64(std::string_view bytes);

// Standard or URL-safe alphabet, with or without padding, line breaks and blanks ignored. Throws
// Error(kInvalidArgument) naming `where`.
std::string decode_base64_lenient(std::string_view text, std::string_view where);

// What the bytes are by their first bytes, else by the name's extension; kNone when neither tells.
Modality media_modality(std::string_view bytes, std::string_view name);

// "png", "wav", "mp4" and so on by the first bytes; "unknown" when they tell nothing.
std::string media_format(std::string_view bytes);

// One media item of a JSON request: a data: URI (any letter case), of the modality the field asks
// for (kNone: of any, as the bytes say). Throws Error(kInvalidArgument) for http(s): (fetching is
// off), file: and everything else, Error(kUnsupportedMedia) when the bytes are something else.
MediaItem media_from_uri(std::string_view uri, Modality expected, std::string_view where);

// The same from the bytes themselves.
MediaItem media_from_bytes(std::string bytes, Modality expected, std::string_view where);

// The same from bare base64 (input_audio) or a data: URI.
MediaItem media_from_base64(std::string_view text, Modality expected, std::string_view where);

// The same from an uploaded file; `name` serves messages and the extension.
MediaItem media_from_upload(std::string bytes, std::string_view name, std::string_view where);

// PCM16 little-endian samples as a WAV file.
std::string wav_file(std::string_view pcm16, int64_t sample_rate, int64_t num_channels);

// "text" and so on; throws Error(kInvalidArgument) naming the known words.
Modality parse_modality(std::string_view word, std::string_view where);

}  // namespace mstar
