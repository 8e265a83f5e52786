#include "mstar/media/image.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <functional>

#include "mstar/base/error.h"
#include "mstar/base/text_file.h"

namespace mstar {
namespace {

constexpr int64_t kWidth = 12;
constexpr int64_t kHeight = 8;

std::string file(const std::string& name) {
  return read_text_file(std::string(MSTAR_SOURCE_DIR "/tests/media/") + name);
}

using Colour = std::array<int, 3>;

// What tests/media/make_files.py draws at a place.
Colour drawn(int64_t x, int64_t y) {
  return {static_cast<int>(20 * x), static_cast<int>(30 * y), static_cast<int>(10 * (x + y))};
}

Colour drawn_grey(int64_t x, int64_t) {
  const int grey = static_cast<int>(20 * x);
  return {grey, grey, grey};
}

Colour at(const Tensor& pixels, int64_t x, int64_t y) {
  const uint8_t* pixel = pixels.data<uint8_t>() + (y * pixels.dim(1) + x) * 3;
  return {pixel[0], pixel[1], pixel[2]};
}

// The largest distance of a colour from what `expected` says.
int distance(const Tensor& pixels, const std::function<Colour(int64_t, int64_t)>& expected) {
  int most = 0;
  for (int64_t y = 0; y < pixels.dim(0); ++y) {
    for (int64_t x = 0; x < pixels.dim(1); ++x) {
      const Colour got = at(pixels, x, y);
      const Colour want = expected(x, y);
      for (size_t colour = 0; colour < 3; ++colour) {
        most = std::max(most, std::abs(got[colour] - want[colour]));
      }
    }
  }
  return most;
}

ErrorCode error_of(std::string_view bytes, const ImageLimits& limits = {}) {
  try {
    decode_image(bytes, "picture", limits);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[picture]"), std::string::npos) << error.what();
    return error.code();
  }
  ADD_FAILURE() << "was decoded";
  return ErrorCode::kInternal;
}

TEST(Image, PicturesOfEveryKindShowWhatWasDrawn) {
  struct Case {
    const char* name;
    Colour (*expected)(int64_t x, int64_t y);
    int tolerance;
  };

  for (const Case& one : std::initializer_list<Case>{{"rgb.png", drawn, 0},
                                                     {"rgb16.png", drawn, 0},
                                                     {"palette.png", drawn, 0},
                                                     {"grey.png", drawn_grey, 0},
                                                     {"rgb.jpg", drawn, 12},
                                                     {"progressive.jpg", drawn, 12},
                                                     {"grey.jpg", drawn_grey, 4},
                                                     {"cmyk.jpg", drawn, 12},
                                                     {"lossy.webp", drawn, 70},
                                                     {"animated.webp", drawn, 0},
                                                     {"rgb.bmp", drawn, 0},
                                                     {"palette.bmp", drawn, 0},
                                                     {"palette.gif", drawn, 0},
                                                     {"interlaced.gif", drawn, 0}}) {
    const Tensor pixels = decode_image(file(one.name), one.name);
    ASSERT_EQ(pixels.shape(), (Shape{kHeight, kWidth, 3})) << one.name;
    EXPECT_LE(distance(pixels, one.expected), one.tolerance) << one.name;
  }
}

TEST(Image, TransparentPartsAreOverWhite) {
  const auto over_white = [](int64_t x, int64_t y) {
    Colour colour = drawn(x, y);
    for (int& value : colour) {
      value = x < 6 ? value : (value * 51 + 255 * 204 + 127) / 255;
    }
    return colour;
  };
  EXPECT_EQ(distance(decode_image(file("alpha.png")), over_white), 0);
  EXPECT_EQ(distance(decode_image(file("alpha.webp")), over_white), 0);
  // A bitmap without masks has no alpha: its fourth byte means nothing.
  EXPECT_EQ(distance(decode_image(file("alpha.bmp")), drawn), 0);
  const auto hole = [](int64_t x, int64_t y) {
    return x == 0 && y == 0 ? Colour{255, 255, 255} : drawn(x, y);
  };
  EXPECT_EQ(distance(decode_image(file("transparent.gif")), hole), 0);
}

TEST(Image, BlackAndWhiteBitsAreRead) {
  const Tensor pixels = decode_image(file("bits.bmp"));
  EXPECT_EQ(at(pixels, 0, 7), (Colour{0, 0, 0}));
  EXPECT_EQ(at(pixels, 11, 0), (Colour{255, 255, 255}));
}

TEST(Image, ExifTurnsThePicture) {
  const auto turned3 = [](int64_t x, int64_t y) { return drawn(11 - x, 7 - y); };
  const auto turned5 = [](int64_t x, int64_t y) { return drawn(y, x); };
  const auto turned6 = [](int64_t x, int64_t y) { return drawn(y, 7 - x); };
  const auto turned8 = [](int64_t x, int64_t y) { return drawn(11 - y, x); };
  EXPECT_EQ(distance(decode_image(file("turned3.png")), turned3), 0);
  EXPECT_EQ(distance(decode_image(file("turned5.png")), turned5), 0);
  EXPECT_EQ(distance(decode_image(file("turned6.png")), turned6), 0);
  EXPECT_EQ(distance(decode_image(file("turned8.png")), turned8), 0);
  EXPECT_EQ(distance(decode_image(file("turned6.webp")), turned6), 0);
  EXPECT_LE(distance(decode_image(file("turned6.jpg")), turned6), 12);
  const ImageInfo info = read_image_info(file("turned6.jpg"));
  EXPECT_EQ(info.format, ImageFormat::kJpeg);
  EXPECT_EQ(info.width, kHeight);
  EXPECT_EQ(info.height, kWidth);
}

TEST(Image, EveryOrientationIsAPlaceForEveryPixel) {
  const Tensor pixels = decode_image(file("rgb.png"));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    // Once more the other way round gives what it was; quarter turns have each other.
    const int back = orientation == 6 ? 8 : orientation == 8 ? 6 : orientation;
    const Tensor again = orient(orient(pixels, orientation), back);
    EXPECT_EQ(distance(again, drawn), 0) << orientation;
  }
}

TEST(Image, LimitsCountBeforePixels) {
  for (const char* name : {"rgb.png", "rgb.jpg", "alpha.webp", "rgb.bmp", "palette.gif"}) {
    EXPECT_EQ(error_of(file(name), {.max_side = 11}), ErrorCode::kTooLarge) << name;
    EXPECT_EQ(error_of(file(name), {.max_pixels = 95}), ErrorCode::kTooLarge) << name;
    EXPECT_NO_THROW(decode_image(file(name), name, {.max_side = 12, .max_pixels = 96}));
  }
}

TEST(Image, OtherBytesAreNoPicture) {
  for (const std::string& bytes : {std::string(), std::string("BM"), std::string(300, 'x')}) {
    EXPECT_EQ(error_of(bytes), ErrorCode::kUnsupportedMedia);
  }
}

// Cut anywhere a picture is refused; changed anywhere it is refused or shows something.
TEST(Image, NoCutOrChangedByteDoesHarm) {
  for (const char* name : {"rgb.png",
                           "rgb16.png",
                           "palette.png",
                           "rgb.jpg",
                           "progressive.jpg",
                           "cmyk.jpg",
                           "turned6.jpg",
                           "alpha.webp",
                           "lossy.webp",
                           "animated.webp",
                           "turned6.webp",
                           "rgb.bmp",
                           "palette.bmp",
                           "alpha.bmp",
                           "bits.bmp",
                           "palette.gif",
                           "transparent.gif"}) {
    const std::string good = file(name);
    for (size_t size = 0; size < good.size(); size += 1 + size / 64) {
      try {
        EXPECT_EQ(decode_image(std::string_view(good).substr(0, size)).num_dims(), 3);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupportedMedia) << name << ' ' << error.what();
      }
    }
    for (size_t index = 0; index < good.size(); ++index) {
      std::string bad = good;
      bad[index] = static_cast<char>(bad[index] ^ 0x5A);
      try {
        EXPECT_EQ(decode_image(bad, name, {.max_pixels = 1 << 20}).num_dims(), 3);
      } catch (const Error& error) {
        EXPECT_NE(error.code(), ErrorCode::kInternal) << name << ' ' << error.what();
      }
    }
  }
}

TEST(Image, AJpegCutShortIsRefused) {
  const std::string good = file("rgb.jpg");
  EXPECT_EQ(error_of(std::string_view(good).substr(0, good.size() - 30)),
            ErrorCode::kUnsupportedMedia);
}

TEST(Image, JpegIsWrittenAndReadBack) {
  const Tensor pixels = decode_image(file("rgb.png"));
  const std::string jpeg = encode_jpeg(pixels, 95);
  EXPECT_EQ(image_format(jpeg), ImageFormat::kJpeg);
  EXPECT_EQ(jpeg, encode_jpeg(pixels, 95));
  const Tensor again = decode_image(jpeg);
  ASSERT_EQ(again.shape(), pixels.shape());
  EXPECT_LE(distance(again, drawn), 40);  // colour has half the resolution
}

}  // namespace
}  // namespace mstar
