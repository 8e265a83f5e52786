// Reorderings of the Wan VAE, channels last. Pixels and normalized latents are f32; cells and what
// the layers compute are f32 or bf16, x and out alike. All enqueue on the stream.
#pragma once

#include <cstdint>

#include "mstar/tensor/stream.h"

namespace mstar::cosmos3 {

// Pixels to coarse cells and back: pixels [t, h, w, 3], cells [t, h / p, w / p, 3 p p] whose
// channel is (colour * p + column in cell) * p + row in cell.
void patchify_pixels(Stream& stream, const Tensor& pixels, int64_t patch, Tensor& cells);
void unpatchify_pixels(Stream& stream, const Tensor& cells, int64_t patch, Tensor& pixels);

// out += x with time and space folded into channels and averaged in groups.
//   x [t, h, w, in], out [ceil(t / time), h / space, w / space, out]; zeros stand before x where t
//   is no multiple of `time`
void add_averaged_down(Stream& stream, const Tensor& x, int64_t time, int64_t space, Tensor& out);

// out += x with channels unfolded into time and space.
//   x [t, h, w, in], out [t * time - dropped, h * space, w * space, out]: the first `dropped`
//   frames are left out
void add_duplicated_up(Stream& stream,
                       const Tensor& x,
                       int64_t time,
                       int64_t space,
                       int64_t dropped,
                       Tensor& out);

// Latents between [c, t, h, w] (channels first, normalized, f32) and [t, h, w, c] (as the VAE
// computes): last = first * std + mean, and back. In `last`, channels beyond the latents' are
// skipped.
void denormalize_latents(Stream& stream,
                         const Tensor& first,
                         const Tensor& mean,
                         const Tensor& inverse_std,
                         Tensor& last);
void normalize_latents(Stream& stream,
                       const Tensor& last,
                       const Tensor& mean,
                       const Tensor& inverse_std,
                       Tensor& first);

// f32 pixels of about [-1, 1] to bytes: clamp(x / 2 + 0.5, 0, 1) * 255, cut off.
void to_bytes(Stream& stream, const Tensor& pixels, Tensor& bytes);

}  // namespace mstar::cosmos3
