#include "mstar/server/encoding.h"

#include <array>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/server/http/message.h"

namespace mstar {

namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_digit(char letter) {
  if (letter >= 'A' && letter <= 'Z') {
    return letter - 'A';
  }
  if (letter >= 'a' && letter <= 'z') {
    return letter - 'a' + 26;
  }
  if (letter >= '0' && letter <= '9') {
    return letter - '0' + 52;
  }
  if (letter == '+' || letter == '-') {
    return 62;
  }
  return letter == '/' || letter == '_' ? 63 : -1;
}

bool has_at(std::string_view bytes, size_t offset, std::string_view magic) {
  return bytes.size() >= offset + magic.size() && bytes.substr(offset, magic.size()) == magic;
}

Modality modality_by_content(std::string_view bytes) {
  if (has_at(bytes, 0, "\x89PNG\r\n") || has_at(bytes, 0, "\xFF\xD8\xFF") ||
      has_at(bytes, 0, "GIF8") || has_at(bytes, 0, "BM") ||
      has_at(bytes, 0, std::string_view("II*\0", 4)) ||
      has_at(bytes, 0, std::string_view("MM\0*", 4))) {
    return Modality::kImage;
  }
  if (has_at(bytes, 0, "RIFF")) {
    return has_at(bytes, 8, "WEBP")   ? Modality::kImage
           : has_at(bytes, 8, "WAVE") ? Modality::kAudio
           : has_at(bytes, 8, "AVI ") ? Modality::kVideo
                                      : Modality::kNone;
  }
  if (has_at(bytes, 0, "fLaC") || has_at(bytes, 0, "OggS") || has_at(bytes, 0, "ID3")) {
    return Modality::kAudio;
  }
  if (has_at(bytes, 4, "ftyp")) {
    return has_at(bytes, 8, "M4A") ? Modality::kAudio : Modality::kVideo;
  }
  if (has_at(bytes, 0, "\x1A\x45\xDF\xA3")) {
    return Modality::kVideo;
  }
  const bool frame_sync = bytes.size() > 2 && bytes[0] == '\xFF' &&
                          (static_cast<unsigned char>(bytes[1]) & 0xE0U) == 0xE0U;
  return frame_sync ? Modality::kAudio : Modality::kNone;  // MP3 or AAC without a tag
}

Modality modality_by_extension(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) {
    return Modality::kNone;
  }
  const std::string extension = lower_ascii(name.substr(dot + 1));

  struct Kind {
    std::string_view extension;
    Modality modality;
  };

  constexpr std::array<Kind, 19> kKinds = {{
      {"png", Modality::kImage},  {"jpg", Modality::kImage},  {"jpeg", Modality::kImage},
      {"webp", Modality::kImage}, {"bmp", Modality::kImage},  {"tiff", Modality::kImage},
      {"tif", Modality::kImage},  {"gif", Modality::kImage},  {"wav", Modality::kAudio},
      {"mp3", Modality::kAudio},  {"flac", Modality::kAudio}, {"ogg", Modality::kAudio},
      {"m4a", Modality::kAudio},  {"aac", Modality::kAudio},  {"mp4", Modality::kVideo},
      {"avi", Modality::kVideo},  {"mov", Modality::kVideo},  {"mkv", Modality::kVideo},
      {"webm", Modality::kVideo},
  }};
  for (const Kind& kind : kKinds) {
    if (kind.extension == extension) {
      return kind.modality;
    }
  }
  return Modality::kNone;
}

MediaItem checked_item(std::string bytes, Modality expected, std::string_view where) {
  if (bytes.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[request] \"", where, "\": the media is empty"));
  }
  const Modality found = modality_by_content(bytes);
  if (expected == Modality::kNone) {
    if (found == Modality::kNone) {
      throw Error(
          ErrorCode::kUnsupportedMedia,
          str_cat("[request] \"", where, "\": this is no image, audio or video that is read here"));
    }
    expected = found;
  }
  if (found != Modality::kNone && found != expected) {
    throw Error(ErrorCode::kUnsupportedMedia,
                str_cat("[request] \"",
                        where,
                        "\": the bytes are ",
                        graph::to_string(found),
                        ", expected ",
                        graph::to_string(expected)));
  }
  return {.modality = expected,
          .bytes = std::make_shared<const std::string>(std::move(bytes)),
          .name = std::string(where)};
}

void append_little(std::string& out, uint64_t value, int num_bytes) {
  for (int index = 0; index < num_bytes; ++index) {
    out += static_cast<char>((value >> (8 * index)) & 0xFFU);
  }
}

bool has_scheme(std::string_view uri, std::string_view scheme) {
  return uri.size() >= scheme.size() && equals_ignoring_case(uri.substr(0, scheme.size()), scheme);
}

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t index = 0; index < bytes.size(); index += 3) {
    const size_t rest = std::min<size_t>(3, bytes.size() - index);
    uint32_t group = 0;
    for (size_t offset = 0; offset < 3; ++offset) {
      group <<= 8;
      group |= offset < rest ? static_cast<unsigned char>(bytes[index + offset]) : 0U;
    }
    for (size_t digit = 0; digit < 4; ++digit) {
      out += digit <= rest ? kAlphabet[(group >> (18 - 6 * digit)) & 63U] : '=';
    }
  }
  return out;
}

std::string decode_base64_lenient(std::string_view text, std::string_view where) {
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t group = 0;
  size_t num_digits = 0;
  bool padded = false;
  for (const char letter : text) {
    if (letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n') {
      continue;
    }
    if (letter == '=') {
      padded = true;
      continue;
    }
    const int digit = base64_digit(letter);
    if (digit < 0 || padded) {
      throw Error(ErrorCode::kInvalidArgument, str_cat("[request] \"", where, "\": is not base64"));
    }
    group = (group << 6) | static_cast<uint32_t>(digit);
    if (++num_digits % 4 == 0) {
      out += static_cast<char>((group >> 16) & 0xFFU);
      out += static_cast<char>((group >> 8) & 0xFFU);
      out += static_cast<char>(group & 0xFFU);
      group = 0;
    }
  }
  const size_t rest = num_digits % 4;
  if (rest == 1) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[request] \"", where, "\": is base64 cut short"));
  }
  if (rest >= 2) {
    group <<= 6 * (4 - rest);
    out += static_cast<char>((group >> 16) & 0xFFU);
  }
  if (rest == 3) {
    out += static_cast<char>((group >> 8) & 0xFFU);
  }
  return out;
}

Modality media_modality(std::string_view bytes, std::string_view name) {
  const Modality found = modality_by_content(bytes);
  return found != Modality::kNone ? found : modality_by_extension(name);
}

std::string media_format(std::string_view bytes) {
  struct Magic {
    size_t offset;
    std::string_view bytes;
    const char* format;
  };

  static constexpr std::array<Magic, 15> kMagics = {{
      {0, "\x89PNG\r\n", "png"},
      {0, "\xFF\xD8\xFF", "jpeg"},
      {0, "GIF8", "gif"},
      {0, "BM", "bmp"},
      {0, std::string_view("II*\0", 4), "tiff"},
      {0, std::string_view("MM\0*", 4), "tiff"},
      {8, "WEBP", "webp"},
      {8, "WAVE", "wav"},
      {8, "AVI ", "avi"},
      {0, "fLaC", "flac"},
      {0, "OggS", "ogg"},
      {0, "ID3", "mp3"},
      {8, "M4A", "m4a"},
      {4, "ftyp", "mp4"},
      {0, "\x1A\x45\xDF\xA3", "mkv"},
  }};
  for (const Magic& magic : kMagics) {
    if (has_at(bytes, magic.offset, magic.bytes)) {
      return magic.format;
    }
  }
  return modality_by_content(bytes) == Modality::kAudio ? "mp3" : "unknown";
}

MediaItem media_from_uri(std::string_view uri, Modality expected, std::string_view where) {
  uri = trim(uri);
  if (has_scheme(uri, "data:")) {
    const size_t comma = uri.find(',');
    const std::string kind =
        comma == std::string_view::npos ? "" : lower_ascii(uri.substr(5, comma - 5));
    if (!kind.ends_with(";base64")) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[request] \"", where, "\": a data: URI must be \"data:TYPE;base64,…\""));
    }
    return checked_item(decode_base64_lenient(uri.substr(comma + 1), where), expected, where);
  }
  const char* problem = "expected a data: URI";
  if (has_scheme(uri, "http:") || has_scheme(uri, "https:")) {
    problem = "fetching remote media is off; send a data: URI";
  } else if (has_scheme(uri, "file:") || uri.starts_with('/')) {
    problem = "local files are not read; send a data: URI";
  }
  throw Error(ErrorCode::kInvalidArgument, str_cat("[request] \"", where, "\": ", problem));
}

MediaItem media_from_bytes(std::string bytes, Modality expected, std::string_view where) {
  return checked_item(std::move(bytes), expected, where);
}

MediaItem media_from_base64(std::string_view text, Modality expected, std::string_view where) {
  if (has_scheme(trim(text), "data:")) {
    return media_from_uri(text, expected, where);
  }
  return checked_item(decode_base64_lenient(text, where), expected, where);
}

MediaItem media_from_upload(std::string bytes, std::string_view name, std::string_view where) {
  const Modality modality = media_modality(bytes, name);
  if (modality == Modality::kNone) {
    throw Error(
        ErrorCode::kUnsupportedMedia,
        str_cat("[request] \"", where, "\": this is no image, audio or video that is read here"));
  }
  return checked_item(std::move(bytes), modality, where);
}

std::string wav_file(std::string_view pcm16, int64_t sample_rate, int64_t num_channels) {
  std::string out = "RIFF";
  append_little(out, 36 + pcm16.size(), 4);
  out += "WAVEfmt ";
  append_little(out, 16, 4);
  append_little(out, 1, 2);  // PCM
  append_little(out, static_cast<uint64_t>(num_channels), 2);
  append_little(out, static_cast<uint64_t>(sample_rate), 4);
  append_little(out, static_cast<uint64_t>(sample_rate * num_channels * 2), 4);
  append_little(out, static_cast<uint64_t>(num_channels * 2), 2);
  append_little(out, 16, 2);
  out += "data";
  append_little(out, pcm16.size(), 4);
  out += pcm16;
  return out;
}

Modality parse_modality(std::string_view word, std::string_view where) {
  constexpr std::array kAll = {Modality::kText,
                               Modality::kImage,
                               Modality::kVideo,
                               Modality::kAudio,
                               Modality::kAction,
                               Modality::kScalar,
                               Modality::kTensor};
  std::string known;
  for (const Modality modality : kAll) {
    if (word == graph::to_string(modality)) {
      return modality;
    }
    known += str_cat(known.empty() ? "" : ", ", graph::to_string(modality));
  }
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[request] \"", where, "\": found \"", word, "\", expected one of ", known));
}

}  // namespace mstar
