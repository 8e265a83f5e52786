// The orientation in EXIF data: where PNG, JPEG and WebP keep it, and TIFF's first directory
// (CIPA DC-008, TIFF 6.0).
#include "mstar/media/image_codecs.h"

namespace mstar::codec {

namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShortType = 3;
constexpr size_t kEntryBytes = 12;

int orientation_in_tiff(std::string_view tiff) {
  if (tiff.size() < 8) {
    return 1;
  }
  const bool little = tiff.substr(0, 4) == std::string_view("II*\0", 4);
  if (!little && tiff.substr(0, 4) != std::string_view("MM\0*", 4)) {
    return 1;
  }
  const auto get16 = [&](size_t offset) {
    return little ? little16(tiff, offset) : big16(tiff, offset);
  };
  const auto get32 = [&](size_t offset) {
    return little ? little32(tiff, offset) : big32(tiff, offset);
  };
  const size_t directory = get32(4);
  if (directory > tiff.size() - 2 || directory < 8) {
    return 1;
  }
  const size_t num_entries = get16(directory);
  for (size_t entry = 0; entry < num_entries; ++entry) {
    const size_t offset = directory + 2 + entry * kEntryBytes;
    if (offset + kEntryBytes > tiff.size()) {
      return 1;
    }
    if (get16(offset) == kOrientationTag) {
      const uint32_t value = get16(offset + 2) == kShortType ? get16(offset + 8) : 1;
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

int orientation_in_png(std::string_view bytes) {
  size_t offset = 8;
  while (offset + 12 <= bytes.size()) {
    const size_t size = big32(bytes, offset);
    const std::string_view kind = bytes.substr(offset + 4, 4);
    if (size > bytes.size() - offset - 12 || kind == "IEND") {
      return 1;
    }
    if (kind == "eXIf") {
      return orientation_in_tiff(bytes.substr(offset + 8, size));
    }
    offset += 12 + size;
  }
  return 1;
}

int orientation_in_jpeg(std::string_view bytes) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  size_t offset = 2;
  while (offset + 4 <= bytes.size() && bytes[offset] == '\xFF') {
    const auto marker = static_cast<unsigned char>(bytes[offset + 1]);
    if (marker == 0xFF) {  // fill
      ++offset;
      continue;
    }
    const size_t size = big16(bytes, offset + 2);
    if (marker == 0xDA || marker == 0xD9 || size < 2 || size > bytes.size() - offset - 2) {
      return 1;  // the picture itself
    }
    const std::string_view data = bytes.substr(offset + 4, size - 2);
    if (marker == 0xE1 && data.starts_with(kExif)) {
      return orientation_in_tiff(data.substr(kExif.size()));
    }
    offset += 2 + size;
  }
  return 1;
}

int orientation_in_webp(std::string_view bytes) {
  size_t offset = 12;
  while (offset + 8 <= bytes.size()) {
    const size_t size = little32(bytes, offset + 4);
    if (size > bytes.size() - offset - 8) {
      return 1;
    }
    if (bytes.substr(offset, 4) == "EXIF") {
      std::string_view data = bytes.substr(offset + 8, size);
      if (data.starts_with(std::string_view("Exif\0\0", 6))) {  // some writers keep JPEG's prefix
        data.remove_prefix(6);
      }
      return orientation_in_tiff(data);
    }
    offset += 8 + size + (size & 1U);
  }
  return 1;
}

}  // namespace

int exif_orientation(std::string_view bytes, ImageFormat format) {
  switch (format) {
    case ImageFormat::kPng: return orientation_in_png(bytes);
    case ImageFormat::kJpeg: return orientation_in_jpeg(bytes);
    case ImageFormat::kWebp: return orientation_in_webp(bytes);
    default: return 1;
  }
}

}  // namespace mstar::codec
