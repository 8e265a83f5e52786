// Windows bitmaps: 1, 4, 8, 16, 24 and 32 bits, bit fields and run lengths (BITMAPINFOHEADER and
// its successors, and OS/2's BITMAPCOREHEADER, as Microsoft documents them).
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "mstar/media/image_codecs.h"

namespace mstar::codec {

namespace {

constexpr size_t kFileHeaderBytes = 14;
constexpr size_t kCoreHeaderBytes = 12;
constexpr size_t kInfoHeaderBytes = 40;
constexpr size_t kHeaderWithAlphaBytes = 56;  // the first one with a mask of alpha

enum Compression : uint32_t { kRgb = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kAlphaBitFields = 6 };

struct Header {
  Size size;
  bool top_down = false;
  uint32_t bits = 0;  // of one pixel
  uint32_t compression = kRgb;
  std::array<uint32_t, 4> masks{};  // red, green, blue, alpha
  std::string_view palette;
  size_t colour_bytes = 4;  // of one palette entry: blue, green, red
  std::string_view pixels;

  size_t row_bytes() const { return (static_cast<size_t>(size.width) * bits + 31) / 32 * 4; }
};

[[noreturn]] void fail(std::string_view where, const char* why) {
  broken(where, ImageFormat::kBmp, why);
}

void read_masks(std::string_view bytes,
                std::string_view where,
                size_t header_bytes,
                Header& header) {
  const bool given = header.compression == kBitFields || header.compression == kAlphaBitFields;
  if (!given) {
    header.masks = header.bits == 16 ? std::array<uint32_t, 4>{0x7C00, 0x03E0, 0x001F, 0}
                                     : std::array<uint32_t, 4>{0xFF0000, 0xFF00, 0xFF, 0};
    return;
  }
  // They follow the short header, and are a part of the longer ones at the same place.
  const bool with_alpha =
      header_bytes >= kHeaderWithAlphaBytes || header.compression == kAlphaBitFields;
  const size_t num_masks = with_alpha ? 4 : 3;
  if (bytes.size() < kFileHeaderBytes + kInfoHeaderBytes + 4 * num_masks) {
    fail(where, "the file is cut short");
  }
  for (size_t colour = 0; colour < num_masks; ++colour) {
    header.masks[colour] = little32(bytes, kFileHeaderBytes + kInfoHeaderBytes + 4 * colour);
  }
}

Header read_header(std::string_view bytes, std::string_view where) {
  Header header;
  const size_t header_bytes = little32(bytes, kFileHeaderBytes);
  const bool core = header_bytes == kCoreHeaderBytes;
  if (!core && (header_bytes < kInfoHeaderBytes || header_bytes > 1024)) {
    fail(where, "the header makes no sense");
  }
  if (bytes.size() < kFileHeaderBytes + header_bytes) {
    fail(where, "the file is cut short");
  }
  uint32_t num_colours = 0;
  if (core) {
    header.size = {.width = little16(bytes, 18), .height = little16(bytes, 20)};
    header.bits = little16(bytes, 24);
    header.colour_bytes = 3;
  } else {
    const auto height = static_cast<int32_t>(little32(bytes, 22));
    header.size = {.width = static_cast<int32_t>(little32(bytes, 18)),
                   .height = std::abs(int64_t{height})};
    header.top_down = height < 0;
    header.bits = little16(bytes, 28);
    header.compression = little32(bytes, 30);
    num_colours = little32(bytes, 46);
  }
  constexpr std::array<uint32_t, 6> kDepths = {1, 4, 8, 16, 24, 32};
  if (std::ranges::find(kDepths, header.bits) == kDepths.end()) {
    fail(where, "pixels have 1, 4, 8, 16, 24 or 32 bits");
  }
  const bool run_lengths = (header.compression == kRle8 && header.bits == 8) ||
                           (header.compression == kRle4 && header.bits == 4);
  const bool fields = (header.compression == kBitFields || header.compression == kAlphaBitFields) &&
                      (header.bits == 16 || header.bits == 32);
  if (header.compression != kRgb && !run_lengths && !fields) {
    fail(where, "its compression is not read here");
  }
  if (header.size.width < 1 || header.size.height < 1 || (run_lengths && header.top_down)) {
    fail(where, "the header makes no sense");
  }
  if (!core) {
    read_masks(bytes, where, header_bytes, header);
  }
  if (header.bits <= 8) {
    const size_t most = size_t{1} << header.bits;
    const size_t colours = num_colours == 0 ? most : std::min<size_t>(num_colours, most);
    header.palette = bytes.substr(kFileHeaderBytes + header_bytes, colours * header.colour_bytes);
  }
  const size_t offset = little32(bytes, 10);
  if (offset > bytes.size()) {
    fail(where, "the file is cut short");
  }
  header.pixels = bytes.substr(offset);
  return header;
}

// One colour of a pixel stretched to 8 bits; `otherwise` where the mask is empty.
uint8_t masked(uint32_t pixel, uint32_t mask, uint8_t otherwise) {
  if (mask == 0) {
    return otherwise;
  }
  const int shift = std::countr_zero(mask);
  const uint64_t most = mask >> shift;
  return static_cast<uint8_t>((((pixel & mask) >> shift) * 255 + most / 2) / most);
}

// Palette numbers of run-length pictures; rows from the bottom up.
std::vector<uint8_t> run_lengths(const Header& header) {
  const auto width = static_cast<size_t>(header.size.width);
  const auto height = static_cast<size_t>(header.size.height);
  std::vector<uint8_t> out(width * height);
  size_t x = 0;
  size_t y = 0;
  std::string_view data = header.pixels;
  const auto next = [&] {
    const auto value = static_cast<uint8_t>(data.front());
    data.remove_prefix(1);
    return value;
  };
  const auto put = [&](uint8_t index) {
    if (x < width && y < height) {
      out[y * width + x] = index;
    }
    ++x;
  };
  const bool nibbles = header.bits == 4;
  while (data.size() >= 2 && y < height) {
    const uint8_t count = next();
    const uint8_t value = next();
    if (count > 0) {
      for (uint8_t i = 0; i < count; ++i) {
        put(!nibbles ? value : static_cast<uint8_t>(i % 2 == 0 ? value >> 4 : value & 15));
      }
    } else if (value == 0) {  // end of the row
      x = 0;
      ++y;
    } else if (value == 1) {  // end of the picture
      break;
    } else if (value == 2) {  // a step right and up
      if (data.size() < 2) {
        break;
      }
      x += next();
      y += next();
    } else {  // so many numbers as they are, in an even number of bytes
      const size_t bytes = nibbles ? (value + 1U) / 2 : value;
      if (data.size() < bytes) {
        break;
      }
      for (size_t i = 0; i < value; ++i) {
        const auto byte = static_cast<uint8_t>(data[nibbles ? i / 2 : i]);
        put(!nibbles ? byte : static_cast<uint8_t>(i % 2 == 0 ? byte >> 4 : byte & 15));
      }
      data.remove_prefix(std::min(data.size(), bytes + (bytes & 1U)));
    }
  }
  return out;
}

// RGBA of one palette number; black outside.
void put_colour(const Header& header, size_t index, uint8_t* to) {
  const size_t at = index * header.colour_bytes;
  const bool known = at + 3 <= header.palette.size();
  for (size_t colour = 0; colour < 3; ++colour) {
    to[colour] = known ? static_cast<uint8_t>(header.palette[at + 2 - colour]) : 0;
  }
  to[3] = 255;
}

void put_row(const Header& header, std::string_view row, uint8_t* to) {
  for (size_t x = 0; x < static_cast<size_t>(header.size.width); ++x, to += 4) {
    if (header.bits <= 8) {
      const size_t bit = x * header.bits;
      const size_t shift = 8 - header.bits - bit % 8;
      const auto byte = static_cast<unsigned char>(row[bit / 8]);
      put_colour(header, (byte >> shift) & ((1U << header.bits) - 1), to);
    } else if (header.bits == 24) {
      for (size_t colour = 0; colour < 3; ++colour) {
        to[colour] = static_cast<uint8_t>(row[3 * x + 2 - colour]);
      }
      to[3] = 255;
    } else {
      const uint32_t pixel = header.bits == 16 ? little16(row, 2 * x) : little32(row, 4 * x);
      for (size_t colour = 0; colour < 4; ++colour) {
        to[colour] = masked(pixel, header.masks[colour], colour == 3 ? 255 : 0);
      }
    }
  }
}

}  // namespace

Size bmp_size(std::string_view bytes, std::string_view where) {
  return read_header(bytes, where).size;
}

Tensor decode_bmp(std::string_view bytes, std::string_view where, const ImageLimits& limits) {
  const Header header = read_header(bytes, where);
  check_size(header.size, where, limits);
  const auto width = static_cast<size_t>(header.size.width);
  const auto height = static_cast<size_t>(header.size.height);
  const bool compressed = header.compression == kRle8 || header.compression == kRle4;
  if (!compressed && header.pixels.size() < header.row_bytes() * height) {
    fail(where, "the file is cut short");
  }
  std::vector<uint8_t> rgba(width * height * 4);
  const std::vector<uint8_t> indexes = compressed ? run_lengths(header) : std::vector<uint8_t>();
  for (size_t row = 0; row < height; ++row) {
    uint8_t* to = rgba.data() + (header.top_down ? row : height - 1 - row) * width * 4;
    if (!compressed) {
      put_row(header, header.pixels.substr(row * header.row_bytes(), header.row_bytes()), to);
      continue;
    }
    for (size_t x = 0; x < width; ++x) {
      put_colour(header, indexes[row * width + x], to + 4 * x);
    }
  }
  return over_white(rgba.data(), header.size.height, header.size.width);
}

}  // namespace mstar::codec
