// Pictures and clips as the vision tower reads them: size, frames, patches. Pure functions, any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "mstar/models/cosmos3/reasoner_config.h"
#include "mstar/tensor/stream.h"

namespace mstar::cosmos3 {

struct PixelSize {
  int64_t height = 0;
  int64_t width = 0;

  friend bool operator==(const PixelSize&, const PixelSize&) = default;
};

// Patches of one picture (one frame) or clip.
struct PatchGrid {
  int64_t frames = 1;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t num_patches() const { return frames * rows * columns; }
};

// The size to which `frames` frames of that size are resized: sides are multiples of `factor`,
// frames * height * width lies in `range` where the sides allow it, the aspect changes as little as
// that permits (the rule of Qwen2-VL's processors, halves rounded to even). Throws
// Error(kInvalidArgument) naming `where` when one side is more than 200 times the other.
PixelSize smart_resize(int64_t frames,
                       PixelSize size,
                       int64_t factor,
                       const PixelRange& range,
                       std::string_view where);

// What a request may say about frames; at most one of the two.
struct FrameChoice {
  std::optional<int64_t> num_frames;
  std::optional<double> fps;
};

// Indices of the frames that are shown of a clip, evenly from the first to the last: `fps` of them
// a second of the clip, within the sampling's bounds and never more than there are; or `num_frames`
// of them.
std::vector<int64_t> sample_frames(int64_t num_frames,
                                   double source_fps,
                                   const FrameSampling& sampling,
                                   const FrameChoice& choice = {});

// frames [n, h, w, 3] u8 -> [n, height, width, 3] u8: bicubic, antialiased, in the arithmetic of
// torchvision's kernel for bytes. The frames themselves when the size is right already.
Tensor resize_frames(Stream& stream, const Tensor& frames, PixelSize size);

// frames [n, h, w, 3] u8, sides multiples of patch_size * merge_size -> [n * h * w / patch_size^2,
// 3 * patch_size^2] u8. Rows go frame by frame and within one block by block (merge_size x
// merge_size patches); a row is (patch row, patch column, channel).
Tensor to_patches(const Tensor& frames, int64_t patch_size, int64_t merge_size);

// Bytes as the tower reads them: (x - 127.5) / 127.5, f32 or bf16 of the same shape.
Tensor normalize_patches(Stream& stream, const Tensor& patches, DType dtype = DType::kF32);

// One frame's patches in raster order -> their places in block order: entry i is the raster index
// of row i.
std::vector<int32_t> block_order(int64_t rows, int64_t columns, int64_t merge_size);

}  // namespace mstar::cosmos3
