#include "mstar/kernels/ops/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "mstar/base/json.h"
#include "mstar/kernels/isa_test_util.h"
#include "mstar/kernels/ref/resize.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

Tensor random_pictures(const Shape& shape, DType dtype, uint32_t seed) {
  std::mt19937 random(seed);
  if (dtype == DType::kU8) {
    Tensor x = Tensor::empty(shape, dtype);
    for (int64_t index = 0; index < x.num_elements(); ++index) {
      // Plenty of black and white, so that overshoots are clamped.
      const uint32_t bits = random();
      x.data<uint8_t>()[index] = static_cast<uint8_t>((bits & 3U) == 0   ? 0U
                                                      : (bits & 3U) == 1 ? 255U
                                                                         : bits >> 8);
    }
    return x;
  }
  std::normal_distribution<float> normal;
  Tensor x = Tensor::empty(shape, DType::kF32);
  for (int64_t index = 0; index < x.num_elements(); ++index) {
    x.data<float>()[index] = normal(random);
  }
  return x.to(dtype);
}

struct Sizes {
  int64_t height, width, channels, out_height, out_width;
};

constexpr Sizes kSizes[] = {
    {37, 53, 3, 16, 40},
    {37, 53, 3, 64, 72},
    {9, 30, 1, 9, 7},    // height stays
    {5, 4, 20, 1, 1},    // everything into one
    {1, 1, 5, 6, 3},     // one into everything
    {300, 2, 2, 2, 200}  // long filters
};

TEST(Resize, EqualsItsTwin) {
  ThreadPool pool(3);
  CpuStream stream(pool);
  for (const Sizes& s : kSizes) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8}) {
      const Tensor x = random_pictures({2, s.height, s.width, s.channels}, dtype, 1);
      const Shape shape{2, s.out_height, s.out_width, s.channels};
      for (const ResizeFilter filter :
           {ResizeFilter::kNearest, ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
        for (const bool antialias : {false, true}) {
          Tensor want = Tensor::empty(shape, DType::kF32);
          ref::resize(x, filter, antialias, want);
          // Bytes: a grey level for the rounding of weights and values in each pass.
          const Tolerance tolerance = dtype == DType::kU8 ? Tolerance{.atol = 2.0}
                                      : dtype == DType::kF32
                                          ? Tolerance{.atol = 2e-5}
                                          : Tolerance{.atol = 1e-2, .rtol = 4e-3};
          for_each_isa([&] {
            Tensor out = Tensor::empty(shape, dtype);
            ops::resize(stream, x, filter, antialias, out);
            const Comparison result = compare(out, want, tolerance);
            EXPECT_TRUE(result.passed)
                << s.height << "x" << s.width << " " << to_string(dtype) << " filter "
                << static_cast<int>(filter) << " " << antialias << " " << result.to_string();
          });
        }
      }
    }
  }
}

TEST(Resize, SameSizeKeepsEveryValue) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  for (const DType dtype : {DType::kF32, DType::kU8}) {
    const Tensor x = random_pictures({1, 12, 17, 3}, dtype, 2);
    for (const ResizeFilter filter :
         {ResizeFilter::kNearest, ResizeFilter::kBilinear, ResizeFilter::kBicubic}) {
      Tensor out = Tensor::empty(x.shape(), dtype);
      ops::resize(stream, x, filter, true, out);
      EXPECT_TRUE(compare(out, x, {.exact = true}).passed);
    }
  }
}

TEST(Resize, DoublingRepeatsPixels) {
  ThreadPool pool(3);
  CpuStream stream(pool);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor x = random_pictures({2, 70, 33, 48}, dtype, 3);
    Tensor out = Tensor::empty({2, 140, 66, 48}, dtype);
    ops::upsample_nearest_2x(stream, x, out);
    for (const int64_t row : {0, 1, 69, 138, 139}) {
      for (const int64_t column : {0, 1, 65}) {
        const Tensor got = out.select(0, 1).select(0, row).select(0, column);
        const Tensor want = x.select(0, 1).select(0, row / 2).select(0, column / 2);
        EXPECT_TRUE(compare(got, want, {.exact = true}).passed);
      }
    }
  }
}

// A captured step computes its tables again: nothing else may overwrite them in between.
TEST(Resize, ReplayEqualsEager) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  Tensor x = random_pictures({1, 40, 30, 3}, DType::kU8, 4);
  Tensor small = Tensor::empty({1, 20, 22, 3}, DType::kU8);
  Tensor large = Tensor::empty({1, 50, 35, 3}, DType::kU8);
  stream.begin_capture();
  ops::resize(stream, x, ResizeFilter::kBicubic, true, small);
  ops::resize(stream, small, ResizeFilter::kBilinear, true, large);
  const auto graph = stream.end_capture();
  const Tensor other = random_pictures({1, 40, 30, 3}, DType::kU8, 5);
  std::memcpy(x.bytes(), other.bytes(), static_cast<size_t>(x.size_bytes()));
  graph->replay();
  Tensor small_eager = Tensor::empty({1, 20, 22, 3}, DType::kU8);
  Tensor large_eager = Tensor::empty({1, 50, 35, 3}, DType::kU8);
  ops::resize(stream, x, ResizeFilter::kBicubic, true, small_eager);
  ops::resize(stream, small_eager, ResizeFilter::kBilinear, true, large_eager);
  EXPECT_TRUE(compare(small, small_eager, {.exact = true}).passed);
  EXPECT_TRUE(compare(large, large_eager, {.exact = true}).passed);
}

// Recorded from torchvision and torch (tests/golden/generate/cosmos3/gen_vision.py).
class Recorded : public testing::Test {
 protected:
  void read(const std::string& file) {
    const std::string path = std::string(MSTAR_SOURCE_DIR) + "/tests/golden/cosmos3/cases/" + file;
    std::ifstream stream(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    ASSERT_GT(bytes_.size(), 8U) << path;
    std::memcpy(&header_size_, bytes_.data(), 8);
    header_ = Json::parse(std::string_view(bytes_).substr(8, header_size_), path);
  }

  // [n, c, h, w] or [c, h, w] as channels last [n, h, w, c].
  Tensor pictures(const std::string& name) {
    const Json& entry = header_.at(name);
    std::vector<int64_t> dims;
    for (const Json& dim : entry.at("shape").get_array()) {
      dims.push_back(dim.get_int());
    }
    if (dims.size() == 3) {
      dims.insert(dims.begin(), 1);
    }
    const bool is_bytes = entry.at("dtype").get_string() == "U8";
    const auto begin = static_cast<size_t>(entry.at("data_offsets").get_array()[0].get_int());
    Tensor stored =
        Tensor::empty(Shape(std::span<const int64_t>(dims)), is_bytes ? DType::kU8 : DType::kF32);
    std::memcpy(stored.bytes(),
                bytes_.data() + 8 + header_size_ + begin,
                static_cast<size_t>(stored.size_bytes()));
    const std::array<int, 4> order{0, 2, 3, 1};
    return stored.permute(order).copy();
  }

  CpuStream& stream() { return stream_; }

 private:
  std::string bytes_;
  uint64_t header_size_ = 0;
  Json header_;
  ThreadPool pool_{2};
  CpuStream stream_{pool_};
};

TEST_F(Recorded, ByteKernelIsExact) {
  read("image-preprocess.safetensors");
  const Tensor image = pictures("in.image");
  for (const char* name : {"out.resized_32x48", "out.resized_64x72", "out.resized_16x40"}) {
    const Tensor want = pictures(name);
    for_each_isa([&] {
      Tensor out = Tensor::empty(want.shape(), DType::kU8);
      ops::resize(stream(), image, ResizeFilter::kBicubic, true, out);
      const Comparison result = compare(out, want, {.exact = true});
      EXPECT_TRUE(result.passed) << name << " " << result.to_string();
    });
  }
}

TEST_F(Recorded, StretchedPictures) {
  read("conditioning-resize.safetensors");
  for (const char* size : {"50x70", "33x97", "96x64", "11x17", "15x23"}) {
    for (const char* to : {"stretch_16x24", "stretch_32x16"}) {
      const Tensor image = pictures(std::string("in.") + size).to(DType::kF32);
      const Tensor want = pictures(std::string("out.") + size + "." + to);
      for_each_isa([&] {
        Tensor out = Tensor::empty(want.shape(), DType::kF32);
        ops::resize(stream(), image, ResizeFilter::kBilinear, false, out);
        for (int64_t index = 0; index < out.num_elements(); ++index) {
          out.data<float>()[index] = out.data<float>()[index] / 127.5F - 1.0F;
        }
        const Comparison result = compare(out, want, {.atol = 4e-6});
        EXPECT_TRUE(result.passed) << size << " " << to << " " << result.to_string();
      });
    }
  }
}

// Scaled to cover with antialiasing, cut from the middle, rounded to grey levels.
TEST_F(Recorded, CroppedPictures) {
  struct Target {
    const char* name;
    int64_t height, width;
  };

  read("conditioning-resize.safetensors");
  for (const char* size : {"50x70", "33x97", "96x64", "11x17", "15x23"}) {
    for (const Target& to : {Target{"16x24", 16, 24}, Target{"32x16", 32, 16}}) {
      const Tensor image = pictures(std::string("in.") + size).to(DType::kF32);
      const Tensor want = pictures(std::string("out.") + size + ".crop_" + to.name);
      const auto height = static_cast<double>(image.dim(1));
      const auto width = static_cast<double>(image.dim(2));
      const double scale =
          std::max(static_cast<double>(to.width) / width, static_cast<double>(to.height) / height);
      Tensor cover = Tensor::empty({1,
                                    static_cast<int64_t>(std::ceil(scale * height)),
                                    static_cast<int64_t>(std::ceil(scale * width)),
                                    3},
                                   DType::kF32);
      ops::resize(stream(), image, ResizeFilter::kBilinear, true, cover);
      const auto middle = [](int64_t whole, int64_t part) {
        return static_cast<int64_t>(std::nearbyint(static_cast<double>(whole - part) / 2.0));
      };
      const int64_t top = middle(cover.dim(1), to.height);
      const int64_t left = middle(cover.dim(2), to.width);
      const Tensor crop =
          cover.slice(1, top, top + to.height).slice(2, left, left + to.width).copy();
      for (int64_t index = 0; index < crop.num_elements(); ++index) {
        crop.data<float>()[index] = std::nearbyint(crop.data<float>()[index]) / 127.5F - 1.0F;
      }
      const Comparison result = compare(crop, want, {.atol = 1e-6});
      EXPECT_TRUE(result.passed) << size << " " << to.name << " " << result.to_string();
    }
  }
}

}  // namespace
}  // namespace mstar
