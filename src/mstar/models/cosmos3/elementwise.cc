#include "mstar/models/cosmos3/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "mstar/base/check.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::cosmos3 {

namespace {

constexpr int64_t kGrain = 16384;  // elements worth a task of their own

int tasks_for(const CpuStream& stream, int64_t num_elements) {
  const int64_t most = int64_t{4} * stream.num_threads();
  return static_cast<int>(std::clamp<int64_t>(num_elements / kGrain, 1, most));
}

// [begin, end) of task `task`.
struct Range {
  int64_t begin;
  int64_t end;
};

Range range_of(int64_t size, int task, int num_tasks) {
  return {size * task / num_tasks, size * (task + 1) / num_tasks};
}

void check_f32(const Tensor& x) {
  MSTAR_CHECK(x.dtype() == DType::kF32 && x.is_contiguous(), x.to_string());
}

struct CombineParams {
  std::array<const float*, 4> x{};
  std::array<float, 4> factor{};
  float* out = nullptr;
  int64_t size = 0;
  int num_terms = 0;
  int num_tasks = 1;
};

void run_combine(const CombineParams& p, int task) {
  const Range range = range_of(p.size, task, p.num_tasks);
  for (int64_t i = range.begin; i < range.end; ++i) {
    float sum = p.factor[0] * p.x[0][i];
    for (int term = 1; term < p.num_terms; ++term) {
      const auto at = static_cast<size_t>(term);
      sum += p.factor[at] * p.x[at][i];
    }
    p.out[i] = sum;
  }
}

struct PatchParams {
  float* latents = nullptr;
  std::byte* tokens = nullptr;
  int64_t channels = 0, frames = 0, height = 0, width = 0, patch = 0, grid_h = 0, grid_w = 0;
  int num_tasks = 1;
};

template <typename T, bool kToTokens>
void run_patch(const PatchParams& p, int task) {
  const int64_t num_tokens = p.frames * p.grid_h * p.grid_w;
  const Range range = range_of(num_tokens, task, p.num_tasks);
  T* out = reinterpret_cast<T*>(p.tokens) + range.begin * p.patch * p.patch * p.channels;
  for (int64_t token = range.begin; token < range.end; ++token) {
    const int64_t frame = token / (p.grid_h * p.grid_w);
    const int64_t row0 = token / p.grid_w % p.grid_h * p.patch;
    const int64_t column0 = token % p.grid_w * p.patch;
    for (int64_t cell = 0; cell < p.patch * p.patch; ++cell) {
      const int64_t row = row0 + cell / p.patch;
      const int64_t column = column0 + cell % p.patch;
      const bool inside = row < p.height && column < p.width;
      float* pixel = p.latents + (frame * p.height + row) * p.width + column;
      const int64_t plane = p.frames * p.height * p.width;
      for (int64_t channel = 0; channel < p.channels; ++channel, ++out) {
        if constexpr (kToTokens) {
          *out = from_float<T>(inside ? pixel[channel * plane] : 0.0F);
        } else if (inside) {
          pixel[channel * plane] = to_float(*out);
        }
      }
    }
  }
}

template <bool kToTokens>
void enqueue_patch(Stream& stream, const Tensor& latents, int64_t patch, const Tensor& tokens) {
  check_f32(latents);
  CpuStream& cpu = as_cpu(stream);
  PatchParams p;
  p.latents = latents.data<float>();
  p.tokens = tokens.bytes();
  p.channels = latents.dim(0);
  p.frames = latents.dim(1);
  p.height = latents.dim(2);
  p.width = latents.dim(3);
  p.patch = patch;
  p.grid_h = (p.height + patch - 1) / patch;
  p.grid_w = (p.width + patch - 1) / patch;
  const Shape shape{p.frames * p.grid_h * p.grid_w, patch * patch * p.channels};
  MSTAR_CHECK(tokens.shape() == shape && tokens.is_contiguous(), tokens.to_string());
  p.num_tasks = tasks_for(cpu, tokens.num_elements());
  if (tokens.dtype() == DType::kBF16) {
    cpu.enqueue("patchify", p.num_tasks, p, &run_patch<bfloat16, kToTokens>);
  } else {
    MSTAR_CHECK(tokens.dtype() == DType::kF32, tokens.to_string());
    cpu.enqueue("patchify", p.num_tasks, p, &run_patch<float, kToTokens>);
  }
}

struct RowParams {
  const float* row = nullptr;
  const uint8_t* mask = nullptr;
  std::byte* x = nullptr;
  int64_t rows = 0, dim = 0;
  int num_tasks = 1;
};

template <typename T>
void run_add_row(const RowParams& p, int task) {
  const Range range = range_of(p.rows, task, p.num_tasks);
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (p.mask[i] == 0) {
      continue;
    }
    T* x = reinterpret_cast<T*>(p.x) + i * p.dim;
    for (int64_t j = 0; j < p.dim; ++j) {
      const T rounded = from_float<T>(p.row[j]);
      x[j] = from_float<T>(to_float(x[j]) + to_float(rounded));
    }
  }
}

struct SnakeParams {
  const float* x = nullptr;
  const float* freq = nullptr;
  const float* inv_amplitude = nullptr;
  float* out = nullptr;
  int64_t rows = 0, dim = 0;
  int num_tasks = 1;
};

void run_snake(const SnakeParams& p, int task) {
  const Range range = range_of(p.rows, task, p.num_tasks);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const float* x = p.x + i * p.dim;
    float* out = p.out + i * p.dim;
    for (int64_t c = 0; c < p.dim; ++c) {
      const float wave = std::sin(p.freq[c] * x[c]);
      out[c] = x[c] + p.inv_amplitude[c] * wave * wave;
    }
  }
}

}  // namespace

void combine(Stream& stream, std::initializer_list<Term> terms, Tensor& out) {
  MSTAR_CHECK(terms.size() >= 1 && terms.size() <= 4, "terms: ", terms.size());
  check_f32(out);
  CpuStream& cpu = as_cpu(stream);
  CombineParams p;
  for (const Term& term : terms) {
    check_f32(term.x);
    MSTAR_CHECK(
        term.x.num_elements() == out.num_elements(), term.x.to_string(), " into ", out.to_string());
    p.x[static_cast<size_t>(p.num_terms)] = term.x.data<float>();
    p.factor[static_cast<size_t>(p.num_terms)] = term.factor;
    ++p.num_terms;
  }
  p.out = out.data<float>();
  p.size = out.num_elements();
  p.num_tasks = tasks_for(cpu, p.size);
  cpu.enqueue("combine", p.num_tasks, p, &run_combine);
}

void add_row_where(Stream& stream, const Tensor& row, const Tensor& mask, Tensor& x) {
  check_f32(row);
  MSTAR_CHECK(x.num_dims() == 2 && x.is_contiguous() && row.num_elements() == x.dim(1) &&
                  mask.num_elements() == x.dim(0),
              x.to_string());
  CpuStream& cpu = as_cpu(stream);
  RowParams p{row.data<float>(), mask.data<uint8_t>(), x.bytes(), x.dim(0), x.dim(1), 1};
  p.num_tasks = tasks_for(cpu, x.num_elements());
  if (x.dtype() == DType::kBF16) {
    cpu.enqueue("add_row_where", p.num_tasks, p, &run_add_row<bfloat16>);
  } else {
    MSTAR_CHECK(x.dtype() == DType::kF32, x.to_string());
    cpu.enqueue("add_row_where", p.num_tasks, p, &run_add_row<float>);
  }
}

void patchify(Stream& stream, const Tensor& latents, int64_t patch, Tensor& tokens) {
  enqueue_patch<true>(stream, latents, patch, tokens);
}

void unpatchify(Stream& stream, const Tensor& tokens, int64_t patch, Tensor& latents) {
  enqueue_patch<false>(stream, latents, patch, tokens);
}

void snake(Stream& stream,
           const Tensor& x,
           const Tensor& freq,
           const Tensor& inv_amplitude,
           Tensor& out) {
  check_f32(x);
  check_f32(out);
  CpuStream& cpu = as_cpu(stream);
  const int64_t dim = x.dim(-1);
  MSTAR_CHECK(freq.num_elements() == dim && inv_amplitude.num_elements() == dim, x.to_string());
  SnakeParams p{x.data<float>(),
                freq.data<float>(),
                inv_amplitude.data<float>(),
                out.data<float>(),
                x.num_elements() / dim,
                dim,
                1};
  p.num_tasks = tasks_for(cpu, x.num_elements());
  cpu.enqueue("snake", p.num_tasks, p, &run_snake);
}

}  // namespace mstar::cosmos3
