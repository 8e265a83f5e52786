#include "mstar/kernels/cpu/norm.h"
#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

// clang-format off
#include "mstar/kernels/cpu/rows-inl.h"

// clang-format on

// Sum over the row of f(x). Four sums side by side hide the latency of the additions; their order
// is fixed by the width of the row alone.
template <typename Row, typename Function>
MSTAR_VEC float sum_row(Row x, int64_t dim, Function&& f) {
  Vec sum[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= dim; i += 4 * kLanes) {
    for (int part = 0; part < 4; ++part) {
      sum[part] = sum[part] + f(x.get(i + part * kLanes));
    }
  }
  for (; i + kLanes <= dim; i += kLanes) {
    sum[0] = sum[0] + f(x.get(i));
  }
  if (i < dim) {
    const int rest = static_cast<int>(dim - i);
    float values[kLanes] = {};
    store(values, f(x.get(i, rest)));
    sum[1] = sum[1] + load_n(values, rest);  // f of the zeros behind the row may not be zero
  }
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

template <typename Row>
MSTAR_VEC float mean_of_squares(Row x, int64_t dim) {
  return sum_row(x, dim, [](Vec v) { return v * v; }) / static_cast<float>(dim);
}

MSTAR_VEC float inverse_root(float x) {
  return 1.0F / __builtin_sqrtf(x);
}

// out = f(x, i, n): f reads its other operands through get(i, n) or, for full vectors, get(i).
template <typename Row, typename Function>
MSTAR_VEC void map_row(Row x, Row out, int64_t dim, Function&& f) {
  for_vectors(
      0,
      dim,
      [&](int64_t i) { out.put(i, f(x.get(i), [i](const AnyRow& row) { return row.get(i); })); },
      [&](int64_t i, int n) {
        out.put(i, f(x.get(i, n), [i, n](const AnyRow& row) { return row.get(i, n); }), n);
      });
}

template <typename Row>
MSTAR_VEC void rms_norm_row(const NormParams& p, const Rows& rows, int64_t row) {
  const Row x = row_at<Row>(rows, row);
  const Row out = row_at<Row>(p.out, row);
  const AnyRow weight = row_at<AnyRow>(p.weight, 0);
  const float factor = inverse_root(mean_of_squares(x, p.dim) + p.eps);
  if (p.weight.data == nullptr) {
    map_row(x, out, p.dim, [&](Vec v, auto&&) { return v * factor; });
  } else if (p.round_before_weight && p.out.dtype == DType::kBF16) {
    const float one = p.gemma_mode ? 1.0F : 0.0F;
    map_row(x, out, p.dim, [&](Vec v, auto&& read) {
      return round_bf16(v * factor) * (read(weight) + one);
    });
  } else if (p.gemma_mode) {
    map_row(x, out, p.dim, [&](Vec v, auto&& read) { return v * factor * (read(weight) + 1.0F); });
  } else {
    map_row(x, out, p.dim, [&](Vec v, auto&& read) { return v * factor * read(weight); });
  }
}

MSTAR_VEC void add_row(const NormParams& p, int64_t row) {
  const AnyRow x = row_at<AnyRow>(p.x, row);
  const AnyRow residual = row_at<AnyRow>(p.residual, row);
  for_vectors(
      0,
      p.dim,
      [&](int64_t i) { residual.put(i, x.get(i) + residual.get(i)); },
      [&](int64_t i, int n) { residual.put(i, x.get(i, n) + residual.get(i, n), n); });
}

}  // namespace

void rms_norm(const NormParams& p, int task) {
  const Share rows = share_of(p.rows, task, p.num_tasks);
  with_row_type(p.x.dtype, p.out.dtype, [&]<typename Row>() {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      rms_norm_row<Row>(p, p.x, row);
    }
  });
}

void add_rms_norm(const NormParams& p, int task) {
  const Share rows = share_of(p.rows, task, p.num_tasks);
  with_row_type(p.residual.dtype, p.out.dtype, [&]<typename Row>() {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      add_row(p, row);
      rms_norm_row<Row>(p, p.residual, row);
    }
  });
}

void ada_rms_norm(const NormParams& p, int task) {
  const Share rows = share_of(p.rows, task, p.num_tasks);
  with_row_type(p.x.dtype, p.out.dtype, [&]<typename Row>() {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const Row x = row_at<Row>(p.x, row);
      const AnyRow scale = row_at<AnyRow>(p.scale, row / p.rows_per_cond);
      const AnyRow shift = row_at<AnyRow>(p.shift, row / p.rows_per_cond);
      const float factor = inverse_root(mean_of_squares(x, p.dim) + p.eps);
      map_row(x, row_at<Row>(p.out, row), p.dim, [&](Vec v, auto&& read) {
        return fma(v * factor, read(scale) + 1.0F, read(shift));
      });
    }
  });
}

void layer_norm(const NormParams& p, int task) {
  const Share rows = share_of(p.rows, task, p.num_tasks);
  const float count = static_cast<float>(p.dim);
  const AnyRow weight = row_at<AnyRow>(p.weight, 0);
  const AnyRow bias = row_at<AnyRow>(p.bias, 0);
  with_row_type(p.x.dtype, p.out.dtype, [&]<typename Row>() {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const Row x = row_at<Row>(p.x, row);
      const float mean = sum_row(x, p.dim, [](Vec v) { return v; }) / count;
      const float variance =
          sum_row(x, p.dim, [mean](Vec v) { return (v - mean) * (v - mean); }) / count;
      const float factor = inverse_root(variance + p.eps);
      map_row(x, row_at<Row>(p.out, row), p.dim, [&](Vec v, auto&& read) {
        const Vec normed = (v - mean) * factor;
        const Vec scaled = p.weight.data != nullptr ? normed * read(weight) : normed;
        return p.bias.data != nullptr ? scaled + read(bias) : scaled;
      });
    }
  });
}

void l2_norm_scaled(const NormParams& p, int task) {
  const Share rows = share_of(p.rows, task, p.num_tasks);
  const float root = __builtin_sqrtf(static_cast<float>(p.dim));
  const AnyRow gamma = row_at<AnyRow>(p.weight, 0);
  with_row_type(p.x.dtype, p.out.dtype, [&]<typename Row>() {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const Row x = row_at<Row>(p.x, row);
      const float norm = __builtin_sqrtf(sum_row(x, p.dim, [](Vec v) { return v * v; }));
      const float factor = root / (norm > 1e-12F ? norm : 1e-12F);
      const Row out = row_at<Row>(p.out, row);
      if (p.silu) {
        map_row(x, out, p.dim, [&](Vec v, auto&& read) {
          const Vec scaled = v * factor * read(gamma);
          return scaled / (exp(-scaled) + 1.0F);
        });
      } else {
        map_row(x, out, p.dim, [&](Vec v, auto&& read) { return v * factor * read(gamma); });
      }
    }
  });
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE
