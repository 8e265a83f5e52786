#include "mstar/kernels/ref/rope.h"

#include <cmath>

#include "mstar/kernels/ref/element.h"

namespace mstar::ref {

void rope_table(const RopeTableParams& p, int task) {
  const Range tokens = share(p.tokens, task, p.num_tasks);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    for (int64_t index = 0; index < p.half; ++index) {
      const int64_t place = p.axis[index] * p.axis_stride + token * p.token_stride;
      const float position = load_float(p.positions, p.positions_dtype, place);
      const float angle = position * p.inv_freq[index];
      p.cos[token * p.half + index] = static_cast<float>(std::cos(static_cast<double>(angle)));
      p.sin[token * p.half + index] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void apply_rope(const RopeParams& p, int task) {
  const Range tokens = share(p.tokens, task, p.num_tasks);
  const int64_t step = p.interleave ? 2 : 1;
  const int64_t partner = p.interleave ? 1 : p.half;
  const DType between = p.round_table ? p.dtype : DType::kF32;  // f32: no further rounding
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    for (int64_t head = 0; head < p.num_heads; ++head) {
      const int64_t row = token * p.token_stride + head * p.head_stride;
      for (int64_t index = 0; index < p.half; ++index) {
        const double cos = rounded(p.cos[token * p.half + index], between);
        const double sin = rounded(p.sin[token * p.half + index], between);
        const int64_t first = row + index * step;
        const double a = load(p.x, p.dtype, first);
        const double b = load(p.x, p.dtype, first + partner);
        if (p.round_table) {
          store(p.x, p.dtype, first, rounded(a * cos, between) - rounded(b * sin, between));
          store(
              p.x, p.dtype, first + partner, rounded(b * cos, between) + rounded(a * sin, between));
        } else {
          store(p.x, p.dtype, first, a * cos - b * sin);
          store(p.x, p.dtype, first + partner, b * cos + a * sin);
        }
      }
    }
  }
}

}  // namespace mstar::ref
