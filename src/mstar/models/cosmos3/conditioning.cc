#include "mstar/models/cosmos3/conditioning.h"

#include <algorithm>
#include <cmath>

#include "mstar/base/check.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/resize.h"

namespace mstar::cosmos3 {

namespace {

void for_each(Tensor& x, float (*function)(float)) {
  float* values = x.data<float>();
  std::transform(values, values + x.num_elements(), values, function);
}

Tensor crop(Stream& stream, const Tensor& x, int64_t height, int64_t width) {
  // Half pixels go to the even side.
  const auto middle = [](int64_t have, int64_t want) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(have - want) / 2.0));
  };
  const int64_t top = middle(x.dim(1), height);
  const int64_t left = middle(x.dim(2), width);
  Tensor out = stream.empty({x.dim(0), height, width, x.dim(3)}, DType::kF32);
  ops::copy(stream, x.slice(1, top, top + height).slice(2, left, left + width), out);
  return out;
}

}  // namespace

Tensor condition_pixels(Stream& stream,
                        const Tensor& frames,
                        int64_t height,
                        int64_t width,
                        ConditioningResize mode) {
  MSTAR_CHECK(frames.num_dims() == 4 && frames.dtype() == DType::kU8, frames.to_string());
  Tensor floats = Tensor::empty(frames.shape(), DType::kF32);
  const Tensor bytes = frames.is_contiguous() ? frames : frames.copy();
  std::transform(bytes.data<uint8_t>(),
                 bytes.data<uint8_t>() + bytes.num_elements(),
                 floats.data<float>(),
                 [](uint8_t value) { return static_cast<float>(value); });
  const int64_t rows = frames.dim(1);
  const int64_t columns = frames.dim(2);
  if (mode == ConditioningResize::kStretch) {
    Tensor out = stream.empty({frames.dim(0), height, width, frames.dim(3)}, DType::kF32);
    ops::resize(stream, floats, ResizeFilter::kBilinear, false, out);
    stream.synchronize();
    for_each(out, [](float value) { return value / 255.0F * 2.0F - 1.0F; });
    return out;
  }
  const double scale = std::max(static_cast<double>(width) / static_cast<double>(columns),
                                static_cast<double>(height) / static_cast<double>(rows));
  const auto covered = [&](int64_t size, int64_t least) {
    return std::max(least, static_cast<int64_t>(std::ceil(scale * static_cast<double>(size))));
  };
  Tensor cover = stream.empty(
      {frames.dim(0), covered(rows, height), covered(columns, width), frames.dim(3)}, DType::kF32);
  ops::resize(stream, floats, ResizeFilter::kBilinear, true, cover);
  Tensor out = crop(stream, cover, height, width);
  stream.synchronize();
  for_each(out, [](float value) {
    return std::clamp(std::nearbyint(value), 0.0F, 255.0F) / 127.5F - 1.0F;
  });
  return out;
}

}  // namespace mstar::cosmos3
