// The first frame of a GIF (GIF89a specification, CompuServe 1990).
#include <algorithm>
#include <array>
#include <vector>

#include "mstar/media/image_codecs.h"

namespace mstar::codec {

namespace {

constexpr size_t kHeaderBytes = 13;
constexpr int kMaxCodeBits = 12;
constexpr uint8_t kExtension = 0x21;
constexpr uint8_t kGraphicControl = 0xF9;
constexpr uint8_t kImage = 0x2C;

// The bytes from front to back; every read is checked.
class Cursor {
 public:
  Cursor(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }

  int64_t word() { return little16(take(2), 0); }

  std::string_view take(size_t size) {
    if (size > bytes_.size() - offset_) {
      fail("the file is cut short");
    }
    offset_ += size;
    return bytes_.substr(offset_ - size, size);
  }

  // The next of the length-prefixed blocks that end with an empty one.
  std::string_view block() { return take(byte()); }

  [[noreturn]] void fail(const char* why) const { broken(where_, ImageFormat::kGif, why); }

 private:
  std::string_view bytes_;
  std::string_view where_;
  size_t offset_ = 0;
};

std::string_view palette(Cursor& cursor, uint8_t flags) {
  return (flags & 0x80U) != 0 ? cursor.take(size_t{3} << ((flags & 7U) + 1)) : std::string_view();
}

// LZW codes out of blocks, low bits first; colour numbers as they come.
class LzwReader {
 public:
  explicit LzwReader(Cursor& cursor) : cursor_(cursor), min_bits_(cursor.byte()) {
    if (min_bits_ < 1 || min_bits_ > 8) {
      cursor.fail("the code size makes no sense");
    }
    clear();
  }

  // Fills `out`; false when the data end before.
  bool read(std::vector<uint8_t>& out) {
    size_t written = 0;
    while (written < out.size()) {
      const int code = next_code();
      if (code == clear_code()) {
        clear();
        continue;
      }
      if (code < 0 || code == clear_code() + 1) {
        return false;
      }
      if (!append(code)) {
        cursor_.fail("a code is used before it is defined");
      }
      while (depth_ > 0 && written < out.size()) {
        out[written++] = stack_[static_cast<size_t>(--depth_)];
      }
    }
    return true;
  }

 private:
  static constexpr int kTableSize = 1 << kMaxCodeBits;

  int clear_code() const { return 1 << min_bits_; }

  void clear() {
    code_bits_ = min_bits_ + 1;
    next_ = clear_code() + 2;
    previous_ = -1;
  }

  // -1 at the end of the blocks.
  int next_code() {
    while (num_bits_ < code_bits_) {
      if (left_.empty()) {
        left_ = ended_ ? std::string_view() : cursor_.block();
        if (left_.empty()) {
          ended_ = true;
          return -1;
        }
      }
      bits_ |= static_cast<uint32_t>(static_cast<unsigned char>(left_.front())) << num_bits_;
      left_.remove_prefix(1);
      num_bits_ += 8;
    }
    const auto code = static_cast<int>(bits_ & ((1U << code_bits_) - 1));
    bits_ >>= code_bits_;
    num_bits_ -= code_bits_;
    return code;
  }

  // Puts the code's colours on the stack, last one first, and defines the next code.
  bool append(int code) {
    if (code > next_ || (code == next_ && previous_ < 0)) {
      return false;
    }
    depth_ = 0;
    int at = code;
    if (code == next_) {  // the code that is being defined: previous and its own first colour
      stack_[static_cast<size_t>(depth_++)] = first_;
      at = previous_;
    }
    while (at >= clear_code()) {
      stack_[static_cast<size_t>(depth_++)] = suffix_[static_cast<size_t>(at)];
      at = prefix_[static_cast<size_t>(at)];
    }
    first_ = static_cast<uint8_t>(at);
    stack_[static_cast<size_t>(depth_++)] = first_;
    if (previous_ >= 0 && next_ < kTableSize) {
      prefix_[static_cast<size_t>(next_)] = static_cast<int16_t>(previous_);
      suffix_[static_cast<size_t>(next_)] = first_;
      ++next_;
      if (next_ == 1 << code_bits_ && code_bits_ < kMaxCodeBits) {
        ++code_bits_;
      }
    }
    previous_ = code;
    return true;
  }

  Cursor& cursor_;
  int min_bits_;
  int code_bits_ = 0;
  int next_ = 0;  // the code that will be defined
  int previous_ = -1;
  uint8_t first_ = 0;  // colour of the previous code
  std::string_view left_;
  bool ended_ = false;
  uint32_t bits_ = 0;
  int num_bits_ = 0;
  int depth_ = 0;
  std::array<int16_t, kTableSize> prefix_{};
  std::array<uint8_t, kTableSize> suffix_{};
  std::array<uint8_t, kTableSize + 1> stack_{};
};

// Row of the picture that comes as number `row` of an interlaced one.
int64_t interlaced_row(int64_t row, int64_t height) {
  constexpr std::array<std::array<int64_t, 2>, 4> kPasses = {{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
  for (const auto& [first, step] : kPasses) {
    const int64_t count = (height - first + step - 1) / step;
    if (row < count) {
      return first + row * step;
    }
    row -= std::max<int64_t>(count, 0);
  }
  return height - 1;
}

struct Frame {
  int64_t left = 0;
  int64_t top = 0;
  int64_t width = 0;
  int64_t height = 0;
  bool interlaced = false;
  int transparent = -1;
  std::string_view palette;
};

// To the first picture, past everything that is about others.
Frame find_frame(Cursor& cursor, std::string_view global_palette) {
  Frame frame;
  while (true) {
    const uint8_t kind = cursor.byte();
    if (kind == kImage) {
      frame.left = cursor.word();
      frame.top = cursor.word();
      frame.width = cursor.word();
      frame.height = cursor.word();
      const uint8_t flags = cursor.byte();
      frame.interlaced = (flags & 0x40U) != 0;
      frame.palette = palette(cursor, flags);
      if (frame.palette.empty()) {
        frame.palette = global_palette;
      }
      return frame;
    }
    if (kind != kExtension) {
      cursor.fail("it holds no picture");
    }
    const bool control = cursor.byte() == kGraphicControl;
    for (std::string_view block = cursor.block(); !block.empty(); block = cursor.block()) {
      if (control && block.size() >= 4) {
        const bool transparent = (static_cast<unsigned char>(block[0]) & 1U) != 0;
        frame.transparent = transparent ? static_cast<unsigned char>(block[3]) : -1;
      }
    }
  }
}

}  // namespace

Size gif_size(std::string_view bytes, std::string_view where) {
  if (bytes.size() < kHeaderBytes) {
    broken(where, ImageFormat::kGif, "the file is cut short");
  }
  return {.width = little16(bytes, 6), .height = little16(bytes, 8)};
}

Tensor decode_gif(std::string_view bytes, std::string_view where, const ImageLimits& limits) {
  const Size size = gif_size(bytes, where);
  check_size(size, where, limits);
  Cursor cursor(bytes, where);
  const std::string_view header = cursor.take(kHeaderBytes);
  const std::string_view global_palette = palette(cursor, static_cast<uint8_t>(header[10]));
  const Frame frame = find_frame(cursor, global_palette);
  check_size({.width = frame.width, .height = frame.height}, where, limits);
  if (frame.palette.empty()) {
    cursor.fail("it has no palette");
  }
  std::vector<uint8_t> indexes(static_cast<size_t>(frame.width * frame.height));
  LzwReader reader(cursor);
  if (!reader.read(indexes)) {
    cursor.fail("the picture is cut short");
  }
  Tensor pixels = Tensor::empty({size.height, size.width, 3}, DType::kU8);
  uint8_t* to = pixels.data<uint8_t>();
  std::fill_n(to, pixels.num_elements(), uint8_t{255});  // where the frame leaves the canvas open
  const size_t num_colours = frame.palette.size() / 3;
  for (int64_t row = 0; row < frame.height; ++row) {
    const int64_t y = frame.top + (frame.interlaced ? interlaced_row(row, frame.height) : row);
    if (y >= size.height) {
      continue;
    }
    for (int64_t column = 0; column < frame.width && frame.left + column < size.width; ++column) {
      const size_t index = indexes[static_cast<size_t>(row * frame.width + column)];
      if (static_cast<int>(index) == frame.transparent || index >= num_colours) {
        continue;
      }
      std::copy_n(reinterpret_cast<const uint8_t*>(frame.palette.data()) + 3 * index,
                  3,
                  to + 3 * (y * size.width + frame.left + column));
    }
  }
  return pixels;
}

}  // namespace mstar::codec
