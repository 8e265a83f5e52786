#include "mstar/models/cosmos3/vae_ops.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::cosmos3 {

namespace {

struct Frames {
  int64_t t = 0, h = 0, w = 0, c = 0;

  explicit Frames(const Tensor& x) : t(x.dim(0)), h(x.dim(1)), w(x.dim(2)), c(x.dim(3)) {
    MSTAR_CHECK(x.num_dims() == 4 && x.is_contiguous() && x.dtype() == DType::kF32, x.to_string());
  }

  Frames() = default;
};

// One task a row of pixels of `to` (or of the finer side).
struct Params {
  const float* from = nullptr;
  float* to = nullptr;
  Frames in;
  Frames out;
  int64_t time = 1, space = 1, dropped = 0;
  const float* mean = nullptr;
  const float* inverse_std = nullptr;
  int64_t rows = 0;
  int num_tasks = 1;
};

void enqueue(Stream& stream,
             const char* name,
             Params& p,
             int64_t rows,
             void (*row)(const Params&, int64_t)) {
  struct Call {
    Params p;
    void (*row)(const Params&, int64_t);
  };

  CpuStream& cpu = as_cpu(stream);
  p.rows = rows;
  p.num_tasks = static_cast<int>(std::clamp<int64_t>(rows, 1, int64_t{4} * cpu.num_threads()));
  cpu.enqueue(name, p.num_tasks, Call{p, row}, [](const Call& call, int task) {
    const int64_t begin = call.p.rows * task / call.p.num_tasks;
    const int64_t end = call.p.rows * (task + 1) / call.p.num_tasks;
    for (int64_t index = begin; index < end; ++index) {
      call.row(call.p, index);
    }
  });
}

// `in` is the pixels, `out` the cells; time holds the patch size.
template <bool kToCells>
void patch_row(const Params& p, int64_t row) {
  const int64_t patch = p.space;
  const int64_t pixel_row = row % p.in.h;
  const int64_t frame = row / p.in.h;
  const int64_t cell_row = frame * p.out.h + pixel_row / patch;
  for (int64_t x = 0; x < p.in.w; ++x) {
    const int64_t pixel = (row * p.in.w + x) * p.in.c;
    const int64_t cell = (cell_row * p.out.w + x / patch) * p.out.c;
    for (int64_t colour = 0; colour < p.in.c; ++colour) {
      const int64_t channel = (colour * patch + x % patch) * patch + pixel_row % patch;
      if constexpr (kToCells) {
        p.to[cell + channel] = p.from[pixel + colour];
      } else {
        p.to[pixel + colour] = p.from[cell + channel];
      }
    }
  }
}

void check_patches(const Frames& pixels, const Frames& cells, int64_t patch) {
  MSTAR_CHECK(pixels.t == cells.t && pixels.h == cells.h * patch && pixels.w == cells.w * patch &&
                  cells.c == pixels.c * patch * patch,
              "patch ",
              patch);
}

void averaged_row(const Params& p, int64_t row) {
  const int64_t folded = p.time * p.space * p.space;
  const int64_t group = p.in.c * folded / p.out.c;
  const int64_t padding = p.out.t * p.time - p.in.t;
  const int64_t frame = row / p.out.h;
  const int64_t y = row % p.out.h;
  const float scale = 1.0F / static_cast<float>(group);
  for (int64_t x = 0; x < p.out.w; ++x) {
    float* out = p.to + (row * p.out.w + x) * p.out.c;
    for (int64_t channel = 0; channel < p.out.c; ++channel) {
      float sum = 0.0F;
      for (int64_t e = channel * group; e < (channel + 1) * group; ++e) {
        const int64_t cell = e % folded;
        const int64_t t = frame * p.time + cell / (p.space * p.space) - padding;
        if (t >= 0) {
          const int64_t iy = y * p.space + cell / p.space % p.space;
          const int64_t ix = x * p.space + cell % p.space;
          sum += p.from[((t * p.in.h + iy) * p.in.w + ix) * p.in.c + e / folded];
        }
      }
      out[channel] += sum * scale;
    }
  }
}

void duplicated_row(const Params& p, int64_t row) {
  const int64_t folded = p.time * p.space * p.space;
  const int64_t repeats = p.out.c * folded / p.in.c;
  const int64_t frame = row / p.out.h + p.dropped;
  const int64_t y = row % p.out.h;
  for (int64_t x = 0; x < p.out.w; ++x) {
    const float* from =
        p.from + (((frame / p.time) * p.in.h + y / p.space) * p.in.w + x / p.space) * p.in.c;
    float* out = p.to + (row * p.out.w + x) * p.out.c;
    const int64_t cell = ((frame % p.time) * p.space + y % p.space) * p.space + x % p.space;
    for (int64_t channel = 0; channel < p.out.c; ++channel) {
      out[channel] += from[(channel * folded + cell) / repeats];
    }
  }
}

void split_row(const Params& p, int64_t row) {
  const int64_t frame = row / p.in.h;
  const int64_t y = row % p.in.h;
  for (int64_t x = 0; x < p.in.w; ++x) {
    const float* from = p.from + (row * p.in.w + x) * p.in.c;
    for (int64_t half = 0; half < 2; ++half) {
      std::copy_n(from + half * p.out.c,
                  p.out.c,
                  p.to + (((2 * frame + half) * p.out.h + y) * p.out.w + x) * p.out.c);
    }
  }
}

// in: [t, h, w, c]; the other side is [c, t, h, w].
template <bool kToLast>
void normalize_row(const Params& p, int64_t row) {
  const int64_t plane = p.in.t * p.in.h * p.in.w;
  for (int64_t x = 0; x < p.in.w; ++x) {
    const int64_t pixel = row * p.in.w + x;
    for (int64_t channel = 0; channel < p.in.c; ++channel) {
      const int64_t first = channel * plane + pixel;
      const int64_t last = pixel * p.in.c + channel;
      if constexpr (kToLast) {
        p.to[last] = p.from[first] / p.inverse_std[channel] + p.mean[channel];
      } else {
        p.to[first] = (p.from[last] - p.mean[channel]) * p.inverse_std[channel];
      }
    }
  }
}

void check_latents(const Tensor& first, const Frames& last) {
  const Shape shape{last.c, last.t, last.h, last.w};
  MSTAR_CHECK(first.shape() == shape && first.is_contiguous() && first.dtype() == DType::kF32,
              first.to_string());
}

}  // namespace

void patchify_pixels(Stream& stream, const Tensor& pixels, int64_t patch, Tensor& cells) {
  Params p{pixels.data<float>(), cells.data<float>(), Frames(pixels), Frames(cells)};
  p.space = patch;
  check_patches(p.in, p.out, patch);
  enqueue(stream, "patchify_pixels", p, p.in.t * p.in.h, &patch_row<true>);
}

void unpatchify_pixels(Stream& stream, const Tensor& cells, int64_t patch, Tensor& pixels) {
  Params p{cells.data<float>(), pixels.data<float>(), Frames(pixels), Frames(cells)};
  p.space = patch;
  check_patches(p.in, p.out, patch);
  enqueue(stream, "unpatchify_pixels", p, p.in.t * p.in.h, &patch_row<false>);
}

void add_averaged_down(Stream& stream, const Tensor& x, int64_t time, int64_t space, Tensor& out) {
  Params p{x.data<float>(), out.data<float>(), Frames(x), Frames(out), time, space};
  MSTAR_CHECK(p.out.t == (p.in.t + time - 1) / time && p.out.h * space == p.in.h &&
                  p.out.w * space == p.in.w && p.in.c * time * space * space % p.out.c == 0,
              x.to_string(),
              " into ",
              out.to_string());
  enqueue(stream, "averaged_down", p, p.out.t * p.out.h, &averaged_row);
}

void add_duplicated_up(Stream& stream,
                       const Tensor& x,
                       int64_t time,
                       int64_t space,
                       int64_t dropped,
                       Tensor& out) {
  Params p{x.data<float>(), out.data<float>(), Frames(x), Frames(out), time, space, dropped};
  MSTAR_CHECK(p.out.t == p.in.t * time - dropped && p.out.h == p.in.h * space &&
                  p.out.w == p.in.w * space && p.out.c * time * space * space % p.in.c == 0,
              x.to_string(),
              " into ",
              out.to_string());
  enqueue(stream, "duplicated_up", p, p.out.t * p.out.h, &duplicated_row);
}

void channels_to_frames(Stream& stream, const Tensor& x, Tensor& out) {
  Params p{x.data<float>(), out.data<float>(), Frames(x), Frames(out)};
  MSTAR_CHECK(
      p.out.t == 2 * p.in.t && 2 * p.out.c == p.in.c && p.out.h == p.in.h && p.out.w == p.in.w,
      x.to_string());
  enqueue(stream, "channels_to_frames", p, p.in.t * p.in.h, &split_row);
}

void denormalize_latents(Stream& stream,
                         const Tensor& first,
                         const Tensor& mean,
                         const Tensor& inverse_std,
                         Tensor& last) {
  Params p{first.data<float>(), last.data<float>(), Frames(last), Frames(last)};
  check_latents(first, p.in);
  p.mean = mean.data<float>();
  p.inverse_std = inverse_std.data<float>();
  enqueue(stream, "denormalize_latents", p, p.in.t * p.in.h, &normalize_row<true>);
}

void normalize_latents(Stream& stream,
                       const Tensor& last,
                       const Tensor& mean,
                       const Tensor& inverse_std,
                       Tensor& first) {
  Params p{last.data<float>(), first.data<float>(), Frames(last), Frames(last)};
  check_latents(first, p.in);
  p.mean = mean.data<float>();
  p.inverse_std = inverse_std.data<float>();
  enqueue(stream, "normalize_latents", p, p.in.t * p.in.h, &normalize_row<false>);
}

void to_bytes(Stream& stream, const Tensor& pixels, Tensor& bytes) {
  MSTAR_CHECK(pixels.shape() == bytes.shape() && pixels.is_contiguous() && bytes.is_contiguous(),
              pixels.to_string());

  struct BytesParams {
    const float* from;
    uint8_t* to;
    int64_t size;
    int num_tasks;
  };

  CpuStream& cpu = as_cpu(stream);
  const int64_t size = pixels.num_elements();
  const int tasks =
      static_cast<int>(std::clamp<int64_t>(size / 16384, 1, int64_t{4} * cpu.num_threads()));
  cpu.enqueue("to_bytes",
              tasks,
              BytesParams{pixels.data<float>(), bytes.data<uint8_t>(), size, tasks},
              [](const BytesParams& p, int task) {
                const int64_t end = p.size * (task + 1) / p.num_tasks;
                for (int64_t i = p.size * task / p.num_tasks; i < end; ++i) {
                  const float shade = std::clamp(p.from[i] / 2.0F + 0.5F, 0.0F, 1.0F);
                  p.to[i] = static_cast<uint8_t>(shade * 255.0F);
                }
              });
}

}  // namespace mstar::cosmos3
