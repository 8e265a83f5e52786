#include "mstar/models/cosmos3/vae_ops.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/models/cosmos3/rows.h"
#include "mstar/tensor/cpu_stream.h"
#include "mstar/tensor/dispatch.h"

namespace mstar::cosmos3 {

namespace {

struct Frames {
  int64_t t = 0, h = 0, w = 0, c = 0;

  explicit Frames(const Tensor& x) : t(x.dim(0)), h(x.dim(1)), w(x.dim(2)), c(x.dim(3)) {
    MSTAR_CHECK(x.num_dims() == 4 && x.is_contiguous(), x.to_string());
  }

  Frames() = default;

  FoldSide side() const { return {t, h, w, c}; }
};

int tasks_for(const CpuStream& stream, int64_t rows) {
  return static_cast<int>(std::clamp<int64_t>(rows, 1, int64_t{4} * stream.num_threads()));
}

// One side is f32, the other of the layers' type.
struct Params {
  float* wide = nullptr;
  void* layer = nullptr;
  Frames in;
  Frames out;
  int64_t patch = 1;
  const float* mean = nullptr;
  const float* inverse_std = nullptr;
};

void check_layer(const Tensor& x) {
  MSTAR_CHECK(x.dtype() == DType::kF32 || x.dtype() == DType::kBF16, x.to_string());
}

// One task is a run of rows of pixels. `row` is called for each.
void enqueue(Stream& stream,
             const char* name,
             const Params& p,
             int64_t rows,
             void (*row)(const Params&, int64_t)) {
  struct Call {
    Params p;
    void (*row)(const Params&, int64_t);
    int64_t rows;
    int num_tasks;
  };

  CpuStream& cpu = as_cpu(stream);
  const int num_tasks = tasks_for(cpu, rows);
  cpu.enqueue(name, num_tasks, Call{p, row, rows, num_tasks}, [](const Call& call, int task) {
    const int64_t begin = call.rows * task / call.num_tasks;
    const int64_t end = call.rows * (task + 1) / call.num_tasks;
    for (int64_t index = begin; index < end; ++index) {
      call.row(call.p, index);
    }
  });
}

// `in` is the pixels (wide), `out` the cells.
template <typename T, bool kToCells>
void patch_row(const Params& p, int64_t row) {
  auto* cells = static_cast<T*>(p.layer);
  const int64_t pixel_row = row % p.in.h;
  const int64_t frame = row / p.in.h;
  const int64_t cell_row = frame * p.out.h + pixel_row / p.patch;
  for (int64_t x = 0; x < p.in.w; ++x) {
    const int64_t pixel = (row * p.in.w + x) * p.in.c;
    const int64_t cell = (cell_row * p.out.w + x / p.patch) * p.out.c;
    for (int64_t colour = 0; colour < p.in.c; ++colour) {
      const int64_t channel = (colour * p.patch + x % p.patch) * p.patch + pixel_row % p.patch;
      if constexpr (kToCells) {
        cells[cell + channel] = from_float<T>(p.wide[pixel + colour]);
      } else {
        p.wide[pixel + colour] = to_float(cells[cell + channel]);
      }
    }
  }
}

template <bool kToCells>
void enqueue_patches(Stream& stream,
                     const char* name,
                     const Tensor& pixels,
                     const Tensor& cells,
                     int64_t patch) {
  Params p{pixels.data<float>(), cells.bytes(), Frames(pixels), Frames(cells), patch};
  MSTAR_CHECK(p.in.t == p.out.t && p.in.h == p.out.h * patch && p.in.w == p.out.w * patch &&
                  p.out.c == p.in.c * patch * patch,
              "patch ",
              patch);
  dispatch_activation(cells.dtype(), [&]<typename T>() {
    enqueue(stream, name, p, p.in.t * p.in.h, &patch_row<T, kToCells>);
  });
}

// in: [t, h, w, c] of the layers' type; the other side is [channels, t, h, w] f32. out.c: channels.
template <typename T, bool kToLast>
void normalize_row(const Params& p, int64_t row) {
  auto* last = static_cast<T*>(p.layer);
  const int64_t plane = p.in.t * p.in.h * p.in.w;
  for (int64_t x = 0; x < p.in.w; ++x) {
    const int64_t pixel = row * p.in.w + x;
    for (int64_t channel = 0; channel < p.out.c; ++channel) {
      float& first = p.wide[channel * plane + pixel];
      T& own = last[pixel * p.in.c + channel];
      if constexpr (kToLast) {
        own = from_float<T>(first / p.inverse_std[channel] + p.mean[channel]);
      } else {
        first = (to_float(own) - p.mean[channel]) * p.inverse_std[channel];
      }
    }
  }
}

template <bool kToLast>
void enqueue_latents(Stream& stream,
                     const char* name,
                     const Tensor& first,
                     const Tensor& last,
                     const Tensor& mean,
                     const Tensor& inverse_std) {
  Params p{first.data<float>(), last.bytes(), Frames(last), Frames(last)};
  p.out.c = first.dim(0);
  const Shape shape{p.out.c, p.in.t, p.in.h, p.in.w};
  MSTAR_CHECK(first.shape() == shape && first.is_contiguous() && p.out.c <= p.in.c &&
                  mean.num_elements() == p.out.c && inverse_std.num_elements() == p.out.c,
              first.to_string(),
              " beside ",
              last.to_string());
  p.mean = mean.data<float>();
  p.inverse_std = inverse_std.data<float>();
  dispatch_activation(last.dtype(), [&]<typename T>() {
    enqueue(stream, name, p, p.in.t * p.in.h, &normalize_row<T, kToLast>);
  });
}

FoldParams fold_params(Stream& stream,
                       const Tensor& x,
                       int64_t time,
                       int64_t space,
                       int64_t dropped,
                       const Tensor& out) {
  check_layer(x);
  MSTAR_CHECK(x.dtype() == out.dtype(), x.to_string(), " into ", out.to_string());
  FoldParams p;
  p.x = x.bytes();
  p.out = out.bytes();
  p.narrow = x.dtype() == DType::kBF16;
  p.in = Frames(x).side();
  p.to = Frames(out).side();
  p.time = time;
  p.space = space;
  p.dropped = dropped;
  p.rows = p.to.t * p.to.h;
  p.num_tasks = tasks_for(as_cpu(stream), p.rows);
  return p;
}

}  // namespace

void patchify_pixels(Stream& stream, const Tensor& pixels, int64_t patch, Tensor& cells) {
  enqueue_patches<true>(stream, "patchify_pixels", pixels, cells, patch);
}

void unpatchify_pixels(Stream& stream, const Tensor& cells, int64_t patch, Tensor& pixels) {
  enqueue_patches<false>(stream, "unpatchify_pixels", pixels, cells, patch);
}

void add_averaged_down(Stream& stream, const Tensor& x, int64_t time, int64_t space, Tensor& out) {
  const FoldParams p = fold_params(stream, x, time, space, 0, out);
  const int64_t folded = time * space * space;
  MSTAR_CHECK(p.to.t == (p.in.t + time - 1) / time && p.to.h * space == p.in.h &&
                  p.to.w * space == p.in.w && p.in.c * folded % p.to.c == 0 && folded <= 64,
              x.to_string(),
              " into ",
              out.to_string());
  as_cpu(stream).enqueue("averaged_down", p.num_tasks, p, MSTAR_BY_ISA(add_averaged_down));
}

void add_duplicated_up(Stream& stream,
                       const Tensor& x,
                       int64_t time,
                       int64_t space,
                       int64_t dropped,
                       Tensor& out) {
  const FoldParams p = fold_params(stream, x, time, space, dropped, out);
  MSTAR_CHECK(p.to.t == p.in.t * time - dropped && p.to.h == p.in.h * space &&
                  p.to.w == p.in.w * space && p.to.c * time * space * space % p.in.c == 0,
              x.to_string(),
              " into ",
              out.to_string());
  as_cpu(stream).enqueue("duplicated_up", p.num_tasks, p, MSTAR_BY_ISA(add_duplicated_up));
}

void denormalize_latents(Stream& stream,
                         const Tensor& first,
                         const Tensor& mean,
                         const Tensor& inverse_std,
                         Tensor& last) {
  enqueue_latents<true>(stream, "denormalize_latents", first, last, mean, inverse_std);
}

void normalize_latents(Stream& stream,
                       const Tensor& last,
                       const Tensor& mean,
                       const Tensor& inverse_std,
                       Tensor& first) {
  enqueue_latents<false>(stream, "normalize_latents", first, last, mean, inverse_std);
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
