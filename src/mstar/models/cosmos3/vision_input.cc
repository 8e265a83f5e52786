#include "mstar/models/cosmos3/vision_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/resize.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::cosmos3 {

namespace {

constexpr int64_t kMostAspect = 200;

// Halves go to the even neighbour, as in Python.
int64_t round_half_even(double value) {
  return static_cast<int64_t>(std::nearbyint(value));
}

struct NormalizeParams {
  const uint8_t* x = nullptr;
  void* out = nullptr;
  int64_t size = 0;
  int num_tasks = 1;
};

template <typename T>
void run_normalize(const NormalizeParams& p, int task) {
  T* out = static_cast<T*>(p.out);
  for (int64_t i = p.size * task / p.num_tasks; i < p.size * (task + 1) / p.num_tasks; ++i) {
    out[i] = from_float<T>((static_cast<float>(p.x[i]) - 127.5F) / 127.5F);
  }
}

}  // namespace

PixelSize smart_resize(int64_t frames,
                       PixelSize size,
                       int64_t factor,
                       const PixelRange& range,
                       std::string_view where) {
  MSTAR_CHECK(size.height > 0 && size.width > 0 && frames > 0 && factor > 0);
  const PixelSize asked = size;
  const auto unit = static_cast<double>(factor);
  if (size.height < factor || size.width < factor) {
    const double scale =
        std::max(unit / static_cast<double>(size.height), unit / static_cast<double>(size.width));
    size.height = static_cast<int64_t>(static_cast<double>(size.height) * scale);
    size.width = static_cast<int64_t>(static_cast<double>(size.width) * scale);
  }
  const auto [shorter, longer] = std::minmax(size.height, size.width);
  if (longer > kMostAspect * shorter) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[",
                        where,
                        "] found ",
                        asked.width,
                        "x",
                        asked.height,
                        " pixels, expected one side to be at most ",
                        kMostAspect,
                        " times the other"));
  }
  const auto height = static_cast<double>(size.height);
  const auto width = static_cast<double>(size.width);
  PixelSize out{round_half_even(height / unit) * factor, round_half_even(width / unit) * factor};
  const auto count = static_cast<double>(frames);
  if (frames * out.height * out.width > range.max) {
    const double shrink = std::sqrt(count * height * width / static_cast<double>(range.max));
    const auto fitted = [&](double side) {
      return std::max(factor, static_cast<int64_t>(std::floor(side / shrink / unit)) * factor);
    };
    out = {fitted(height), fitted(width)};
  } else if (frames * out.height * out.width < range.min) {
    const double grow = std::sqrt(static_cast<double>(range.min) / (count * height * width));
    const auto fitted = [&](double side) {
      return static_cast<int64_t>(std::ceil(side * grow / unit)) * factor;
    };
    out = {fitted(height), fitted(width)};
  }
  return out;
}

std::vector<int64_t> sample_frames(int64_t num_frames,
                                   double source_fps,
                                   const FrameSampling& sampling,
                                   const FrameChoice& choice) {
  MSTAR_CHECK(num_frames > 0 && source_fps > 0.0);
  int64_t count = 0;
  if (choice.num_frames) {
    count = std::clamp<int64_t>(*choice.num_frames, 1, sampling.max_frames);
  } else {
    const double per_second = choice.fps.value_or(sampling.fps);
    const double wanted = static_cast<double>(num_frames) / source_fps * per_second;
    count = static_cast<int64_t>(std::min(wanted, static_cast<double>(sampling.max_frames)));
    count = std::max(count, sampling.min_frames);
  }
  count = std::min(count, num_frames);
  std::vector<int64_t> indices(static_cast<size_t>(count), 0);
  if (count > 1) {
    const double step = static_cast<double>(num_frames - 1) / static_cast<double>(count - 1);
    for (int64_t i = 0; i + 1 < count; ++i) {
      indices[static_cast<size_t>(i)] = round_half_even(static_cast<double>(i) * step);
    }
    indices.back() = num_frames - 1;
  }
  return indices;
}

Tensor resize_frames(Stream& stream, const Tensor& frames, PixelSize size) {
  MSTAR_CHECK(frames.num_dims() == 4 && frames.dtype() == DType::kU8, frames.to_string());
  if (frames.dim(1) == size.height && frames.dim(2) == size.width) {
    return frames;
  }
  Tensor out = Tensor::empty({frames.dim(0), size.height, size.width, frames.dim(3)}, DType::kU8);
  ops::resize(stream, frames, ResizeFilter::kBicubic, true, out);
  stream.synchronize();
  return out;
}

std::vector<int32_t> block_order(int64_t rows, int64_t columns, int64_t merge_size) {
  MSTAR_CHECK(rows % merge_size == 0 && columns % merge_size == 0, rows, "x", columns);
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; row += merge_size) {
    for (int64_t column = 0; column < columns; column += merge_size) {
      for (int64_t inner_row = 0; inner_row < merge_size; ++inner_row) {
        for (int64_t inner_column = 0; inner_column < merge_size; ++inner_column) {
          order.push_back(
              static_cast<int32_t>((row + inner_row) * columns + column + inner_column));
        }
      }
    }
  }
  return order;
}

Tensor to_patches(const Tensor& frames, int64_t patch_size, int64_t merge_size) {
  MSTAR_CHECK(frames.num_dims() == 4 && frames.dtype() == DType::kU8 && frames.is_contiguous() &&
                  frames.dim(1) % patch_size == 0 && frames.dim(2) % patch_size == 0,
              frames.to_string());
  const int64_t channels = frames.dim(3);
  const int64_t columns = frames.dim(2) / patch_size;
  const int64_t rows = frames.dim(1) / patch_size;
  const std::vector<int32_t> order = block_order(rows, columns, merge_size);
  const int64_t line = frames.dim(2) * channels;  // bytes of a pixel row
  const int64_t strip = patch_size * channels;    // bytes of a patch's row
  Tensor out = Tensor::empty({frames.dim(0) * rows * columns, patch_size * strip}, DType::kU8);
  uint8_t* to = out.data<uint8_t>();
  for (int64_t frame = 0; frame < frames.dim(0); ++frame) {
    const uint8_t* pixels = frames.data<uint8_t>() + frame * frames.dim(1) * line;
    for (const int32_t patch : order) {
      const uint8_t* from = pixels + patch / columns * patch_size * line + patch % columns * strip;
      for (int64_t row = 0; row < patch_size; ++row) {
        std::memcpy(to, from + row * line, static_cast<size_t>(strip));
        to += strip;
      }
    }
  }
  return out;
}

Tensor normalize_patches(Stream& stream, const Tensor& patches, DType dtype) {
  MSTAR_CHECK(patches.dtype() == DType::kU8 && patches.is_contiguous(), patches.to_string());
  Tensor out = stream.empty(patches.shape(), dtype);
  CpuStream& cpu = as_cpu(stream);
  constexpr int64_t kGrain = 65536;  // bytes worth a task of their own
  NormalizeParams params{patches.data<uint8_t>(), out.bytes(), patches.num_elements()};
  params.num_tasks = static_cast<int>(
      std::clamp<int64_t>(params.size / kGrain, 1, int64_t{4} * cpu.num_threads()));
  if (dtype == DType::kBF16) {
    cpu.enqueue("normalize_patches", params.num_tasks, params, &run_normalize<bfloat16>);
  } else {
    MSTAR_CHECK(dtype == DType::kF32, out.to_string());
    cpu.enqueue("normalize_patches", params.num_tasks, params, &run_normalize<float>);
  }
  return out;
}

}  // namespace mstar::cosmos3
