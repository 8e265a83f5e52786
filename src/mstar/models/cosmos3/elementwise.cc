#include "mstar/models/cosmos3/elementwise.h"

#include <algorithm>
#include <array>

#include "mstar/base/check.h"
#include "mstar/models/cosmos3/rows.h"
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
                  mask.num_elements() == x.dim(0) &&
                  (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16),
              x.to_string());
  CpuStream& cpu = as_cpu(stream);
  const int tasks = tasks_for(cpu, x.num_elements());
  const AddRowParams p{row.data<float>(),
                       mask.data<uint8_t>(),
                       x.bytes(),
                       x.dtype() == DType::kBF16,
                       x.dim(0),
                       x.dim(1),
                       tasks};
  cpu.enqueue("add_row_where", tasks, p, MSTAR_BY_ISA(add_row_where));
}

void patchify(Stream& stream, const Tensor& latents, int64_t patch, Tensor& tokens) {
  enqueue_patch<true>(stream, latents, patch, tokens);
}

void unpatchify(Stream& stream, const Tensor& tokens, int64_t patch, Tensor& latents) {
  enqueue_patch<false>(stream, latents, patch, tokens);
}

void norm_rope(Stream& stream,
               const Tensor& weight,
               const RmsNormOptions& norm,
               const Tensor& cos,
               const Tensor& sin,
               const RopeConfig& rope,
               Tensor& x) {
  const int64_t dim = x.dim(2);
  const bool whole = rope.rotary_dim == 0 || rope.rotary_dim == dim;
  const bool fused = dim % 32 == 0 && dim <= 256 && whole && !rope.interleave && !norm.gemma_mode &&
                     weight.defined() && x.stride(1) == dim && x.stride(2) == 1 &&
                     cos.is_contiguous() && sin.is_contiguous();
  if (!fused) {
    ops::rms_norm(stream, x, weight, norm, x);
    ops::apply_rope(stream, cos, sin, rope, true, x);
    return;
  }
  MSTAR_CHECK((x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) && cos.dim(0) == x.dim(0) &&
                  cos.dim(1) == dim / 2 && weight.num_elements() == dim,
              x.to_string());
  CpuStream& cpu = as_cpu(stream);
  NormRopeParams p;
  p.x = x.bytes();
  p.narrow = x.dtype() == DType::kBF16;
  p.tokens = x.dim(0);
  p.heads = x.dim(1);
  p.dim = dim;
  p.token_stride = x.stride(0);
  p.weight = weight.bytes();
  p.narrow_weight = weight.dtype() == DType::kBF16;
  p.round_before_weight = norm.rounding == RmsNormRounding::kBeforeWeight;
  p.eps = norm.eps;
  p.cos = cos.data<float>();
  p.sin = sin.data<float>();
  p.num_tasks = static_cast<int>(
      std::min<int64_t>(tasks_for(cpu, x.num_elements()), std::max<int64_t>(p.tokens, 1)));
  cpu.enqueue("norm_rope", p.num_tasks, p, MSTAR_BY_ISA(norm_rope));
}

void snake(Stream& stream,
           const Tensor& x,
           const Tensor& freq,
           const Tensor& inv_amplitude,
           Tensor& out) {
  MSTAR_CHECK(x.is_contiguous() && out.is_contiguous() && x.shape() == out.shape() &&
                  x.dtype() == out.dtype() &&
                  (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16),
              x.to_string(),
              " into ",
              out.to_string());
  CpuStream& cpu = as_cpu(stream);
  const int64_t dim = x.dim(-1);
  MSTAR_CHECK(freq.num_elements() == dim && inv_amplitude.num_elements() == dim, x.to_string());
  const int tasks = tasks_for(cpu, x.num_elements());
  const SnakeParams p{x.bytes(),
                      out.bytes(),
                      x.dtype() == DType::kBF16,
                      freq.data<float>(),
                      inv_amplitude.data<float>(),
                      x.num_elements() / dim,
                      dim,
                      tasks};
  cpu.enqueue("snake", tasks, p, MSTAR_BY_ISA(snake_rows));
}

}  // namespace mstar::cosmos3
