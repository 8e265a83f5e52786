#include "mstar/media/png.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"

namespace mstar {
namespace {

Tensor gradient(int64_t height, int64_t width) {
  Tensor pixels = Tensor::empty({height, width, 3}, DType::kU8);
  for (int64_t i = 0; i < pixels.num_elements(); ++i) {
    pixels.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7 % 251);
  }
  return pixels;
}

ErrorCode error_of(std::string_view bytes, const ImageLimits& limits = {}) {
  try {
    decode_png(bytes, "picture", limits);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "was decoded";
  return ErrorCode::kInternal;
}

TEST(Png, KeepsEveryPixel) {
  const Tensor pixels = gradient(5, 7);
  const Tensor again = decode_png(encode_png(pixels), "picture");
  EXPECT_EQ(again.shape(), pixels.shape());
  EXPECT_EQ(again.to_ints(), pixels.to_ints());
}

TEST(Png, RefusesBrokenBytes) {
  const std::string good = encode_png(gradient(16, 16));
  EXPECT_EQ(error_of("JFIF"), ErrorCode::kUnsupportedMedia);
  EXPECT_EQ(error_of(std::string_view(good).substr(0, 20)), ErrorCode::kUnsupportedMedia);
  EXPECT_EQ(error_of(std::string_view(good).substr(0, good.size() - 40)),
            ErrorCode::kUnsupportedMedia);
}

TEST(Png, RefusesTooLargeBeforeReadingPixels) {
  const std::string good = encode_png(gradient(16, 16));
  EXPECT_EQ(error_of(good, {.max_side = 15}), ErrorCode::kTooLarge);
  EXPECT_EQ(error_of(good, {.max_pixels = 255}), ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace mstar
