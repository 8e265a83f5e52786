#include "mstar/models/cosmos3/rows.h"

#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

constexpr int64_t kMostRatio = 4;  // of channel counts that have a fast path

struct Share {
  int64_t begin;
  int64_t end;
};

MSTAR_VEC Share share_of(int64_t size, int task, int num_tasks) {
  return {size * task / num_tasks, size * (task + 1) / num_tasks};
}

MSTAR_VEC void store_one(float* p, float x) {
  *p = x;
}

MSTAR_VEC void store_one(bfloat16* p, float x) {
  store_n(p, set(x), 1);
}

// Whole vectors are the common case, and the cheaper one.
template <typename T>
MSTAR_VEC Vec take(const T* p, int count) {
  return count == kLanes ? load(p) : load_n(p, count);
}

template <typename T>
MSTAR_VEC void put(T* p, Vec x, int count) {
  count == kLanes ? store(p, x) : store_n(p, x, count);
}

// to[i] += values[i]
template <typename T>
MSTAR_VEC void add_values(const float* values, int64_t count, T* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(to + i, load(to + i) + load(values + i));
  }
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    store_n(to + i, load_n(to + i, rest) + load_n(values + i, rest), rest);
  }
}

// Where the cell `cell` of output pixel (frame, y, x) reads; null before the first frame.
template <typename T>
MSTAR_VEC const T* cell_of(const FoldParams& p, int64_t frame, int64_t y, int64_t x, int64_t cell) {
  const int64_t padding = p.to.t * p.time - p.in.t;
  const int64_t t = frame * p.time + cell / (p.space * p.space) - padding;
  if (t < 0) {
    return nullptr;
  }
  const int64_t iy = y * p.space + cell / p.space % p.space;
  const int64_t ix = x * p.space + cell % p.space;
  return static_cast<const T*>(p.x) + ((t * p.in.h + iy) * p.in.w + ix) * p.in.c;
}

// Output channel c * ratio + phase is the mean of `group` cells, from phase * group on, of input
// channel c: cells are summed in their order, vectors of channels side by side.
template <typename T>
MSTAR_VEC void averaged_pixel(const FoldParams& p,
                              const T* const* cells,
                              int64_t ratio,
                              int64_t group,
                              T* out) {
  const Vec scale = set(1.0F / static_cast<float>(group));
  float between[kMostRatio * kLanes];
  for (int64_t c = 0; c < p.in.c; c += kLanes) {
    const int64_t left = p.in.c - c;
    const int count = static_cast<int>(left < kLanes ? left : kLanes);
    for (int64_t phase = 0; phase < ratio; ++phase) {
      Vec sum = zero();
      for (int64_t j = phase * group; j < (phase + 1) * group; ++j) {
        if (cells[j] != nullptr) {
          sum = sum + take(cells[j] + c, count);
        }
      }
      if (ratio == 1) {
        put(out + c, take(out + c, count) + sum * scale, count);
        continue;
      }
      float own[kLanes];
      store(own, sum * scale);
      for (int lane = 0; lane < count; ++lane) {
        between[lane * ratio + phase] = own[lane];
      }
    }
    if (ratio > 1) {
      add_values(between, count * ratio, out + c * ratio);
    }
  }
}

// Any channel counts.
template <typename T>
void averaged_pixel_slowly(const FoldParams& p, const T* const* cells, T* out) {
  const int64_t folded = p.time * p.space * p.space;
  const int64_t group = p.in.c * folded / p.to.c;
  const float scale = 1.0F / static_cast<float>(group);
  for (int64_t channel = 0; channel < p.to.c; ++channel) {
    float sum = 0.0F;
    for (int64_t e = channel * group; e < (channel + 1) * group; ++e) {
      const T* cell = cells[e % folded];
      sum += cell != nullptr ? load_one(cell + e / folded) : 0.0F;
    }
    store_one(out + channel, load_one(out + channel) + sum * scale);
  }
}

template <typename T>
void averaged_rows(const FoldParams& p, int task) {
  constexpr int64_t kMostCells = 64;
  const Share rows = share_of(p.rows, task, p.num_tasks);
  const int64_t folded = p.time * p.space * p.space;
  const int64_t ratio = p.to.c / p.in.c;
  const bool fast =
      p.to.c % p.in.c == 0 && ratio <= kMostRatio && folded % ratio == 0 && ratio >= 1;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t x = 0; x < p.to.w; ++x) {
      const T* cells[kMostCells];
      for (int64_t cell = 0; cell < folded; ++cell) {
        cells[cell] = cell_of<T>(p, row / p.to.h, row % p.to.h, x, cell);
      }
      T* out = static_cast<T*>(p.out) + (row * p.to.w + x) * p.to.c;
      if (fast) {
        averaged_pixel(p, cells, ratio, folded / ratio, out);
      } else {
        averaged_pixel_slowly(p, cells, out);
      }
    }
  }
}

// out[c] += from[c * step + offset]
template <typename T>
MSTAR_VEC void duplicated_pixel(const T* from, int64_t step, int64_t channels, T* out) {
  int64_t c = 0;
  if (step == 1) {
    for (; c + kLanes <= channels; c += kLanes) {
      store(out + c, load(out + c) + load(from + c));
    }
  }
  while (c < channels) {
    const int64_t left = channels - c;
    const int count = static_cast<int>(left < kLanes ? left : kLanes);
    float values[kLanes];
    for (int lane = 0; lane < count; ++lane) {
      values[lane] = load_one(from + (c + lane) * step);
    }
    add_values(values, count, out + c);
    c += count;
  }
}

template <typename T>
void duplicated_rows(const FoldParams& p, int task) {
  const Share rows = share_of(p.rows, task, p.num_tasks);
  const int64_t folded = p.time * p.space * p.space;
  const int64_t repeats = p.to.c * folded / p.in.c;
  const int64_t step = p.in.c / p.to.c;
  const bool fast = p.in.c % p.to.c == 0 && folded % repeats == 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t frame = row / p.to.h + p.dropped;
    const int64_t y = row % p.to.h;
    for (int64_t x = 0; x < p.to.w; ++x) {
      const T* from = static_cast<const T*>(p.x) +
                      (((frame / p.time) * p.in.h + y / p.space) * p.in.w + x / p.space) * p.in.c;
      T* out = static_cast<T*>(p.out) + (row * p.to.w + x) * p.to.c;
      const int64_t cell = ((frame % p.time) * p.space + y % p.space) * p.space + x % p.space;
      if (fast) {
        duplicated_pixel(from + cell / repeats, step, p.to.c, out);
        continue;
      }
      for (int64_t c = 0; c < p.to.c; ++c) {
        store_one(out + c, load_one(out + c) + load_one(from + (c * folded + cell) / repeats));
      }
    }
  }
}

// sin(x)^2, absolute error 2e-7 for |x| up to some thousands: x without the nearest multiple of pi,
// whose sine is equal up to its sign.
MSTAR_VEC Vec square_of_sine(Vec x) {
  constexpr float kSeries[] = {
      -0.16666667F, 0.0083333310F, -0.00019840874F, 2.7525562e-06F, -2.3889859e-08F};
  const Vec turns = round(x * 0.318309886F);
  // pi in three parts; the first two have few bits, so that their products are exact.
  Vec r = fnma(turns, set(3.140625F), x);
  r = fnma(turns, set(9.67502593994140625e-4F), r);
  r = fnma(turns, set(1.509957990978376432e-7F), r);
  const Vec square = r * r;
  const Vec sine = fma(r * square, polynomial(square, kSeries), r);
  return sine * sine;
}

template <typename T>
void snake_of(const SnakeParams& p, int task) {
  const Share rows = share_of(p.rows, task, p.num_tasks);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = static_cast<const T*>(p.x) + row * p.dim;
    T* out = static_cast<T*>(p.out) + row * p.dim;
    for (int64_t c = 0; c < p.dim; c += kLanes) {
      const int64_t left = p.dim - c;
      const int count = static_cast<int>(left < kLanes ? left : kLanes);
      const Vec value = take(x + c, count);
      const Vec wave = square_of_sine(take(p.freq + c, count) * value);
      put(out + c, value + take(p.inv_amplitude + c, count) * wave, count);
    }
  }
}

template <typename T>
void add_row_to(const AddRowParams& p, int task) {
  const Share rows = share_of(p.rows, task, p.num_tasks);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    if (p.mask[row] == 0) {
      continue;
    }
    T* x = static_cast<T*>(p.x) + row * p.dim;
    for (int64_t c = 0; c < p.dim; c += kLanes) {
      const int64_t left = p.dim - c;
      const int count = static_cast<int>(left < kLanes ? left : kLanes);
      const Vec added = take(p.row + c, count);
      put(x + c, take(x + c, count) + (sizeof(T) == 2 ? round_bf16(added) : added), count);
    }
  }
}

template <bool kNarrow>
MSTAR_VEC Vec rounded(Vec x) {
  return kNarrow ? round_bf16(x) : x;
}

// Sums in the order of kernels/cpu/norm_kernels.cc.
template <typename T>
MSTAR_VEC float norm_factor(const T* x, int64_t dim, float eps) {
  Vec sum[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= dim; i += 4 * kLanes) {
    for (int part = 0; part < 4; ++part) {
      const Vec v = load(x + i + part * kLanes);
      sum[part] = sum[part] + v * v;
    }
  }
  for (; i < dim; i += kLanes) {
    const Vec v = load(x + i);
    sum[0] = sum[0] + v * v;
  }
  const float mean = reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3])) / static_cast<float>(dim);
  return 1.0F / __builtin_sqrtf(mean + eps);
}

template <typename T>
void norm_rope_of(const NormRopeParams& p, int task) {
  constexpr bool kNarrow = sizeof(T) == 2;
  constexpr int64_t kMostDim = 256;
  const int64_t half = p.dim / 2;
  float weight[kMostDim];
  for (int64_t i = 0; i < p.dim; i += kLanes) {
    store(weight + i,
          p.narrow_weight ? load(static_cast<const bfloat16*>(p.weight) + i)
                          : load(static_cast<const float*>(p.weight) + i));
  }
  const Share tokens = share_of(p.tokens, task, p.num_tasks);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    float cos[kMostDim / 2];
    float sin[kMostDim / 2];
    for (int64_t i = 0; i < half; i += kLanes) {
      store(cos + i, rounded<kNarrow>(load(p.cos + token * half + i)));
      store(sin + i, rounded<kNarrow>(load(p.sin + token * half + i)));
    }
    for (int64_t head = 0; head < p.heads; ++head) {
      T* x = static_cast<T*>(p.x) + token * p.token_stride + head * p.dim;
      const float factor = norm_factor(x, p.dim, p.eps);
      const auto normed = [&](int64_t i) {
        const Vec v = load(x + i) * factor;
        const Vec scaled =
            (kNarrow && p.round_before_weight ? round_bf16(v) : v) * load(weight + i);
        return rounded<kNarrow>(scaled);
      };
      for (int64_t i = 0; i < half; i += kLanes) {
        const Vec a = normed(i);
        const Vec b = normed(half + i);
        const Vec c = load(cos + i);
        const Vec s = load(sin + i);
        store(x + i, rounded<kNarrow>(a * c) - rounded<kNarrow>(b * s));
        store(x + half + i, rounded<kNarrow>(b * c) + rounded<kNarrow>(a * s));
      }
    }
  }
}

}  // namespace

void add_averaged_down(const FoldParams& p, int task) {
  p.narrow ? averaged_rows<bfloat16>(p, task) : averaged_rows<float>(p, task);
}

void add_duplicated_up(const FoldParams& p, int task) {
  p.narrow ? duplicated_rows<bfloat16>(p, task) : duplicated_rows<float>(p, task);
}

void snake_rows(const SnakeParams& p, int task) {
  p.narrow ? snake_of<bfloat16>(p, task) : snake_of<float>(p, task);
}

void add_row_where(const AddRowParams& p, int task) {
  p.narrow ? add_row_to<bfloat16>(p, task) : add_row_to<float>(p, task);
}

void norm_rope(const NormRopeParams& p, int task) {
  p.narrow ? norm_rope_of<bfloat16>(p, task) : norm_rope_of<float>(p, task);
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE
