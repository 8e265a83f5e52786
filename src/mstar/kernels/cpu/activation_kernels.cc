#include "mstar/kernels/cpu/activation.h"
#include "mstar/kernels/cpu/vec.h"

namespace mstar::MSTAR_ISA_NAMESPACE {

namespace {

// clang-format off
#include "mstar/kernels/cpu/rows-inl.h"

// clang-format on

template <Activation kActivation>
MSTAR_VEC Vec activated(Vec x) {
  if constexpr (kActivation == Activation::kSilu) {
    return x / (exp(-x) + 1.0F);
  } else if constexpr (kActivation == Activation::kGelu) {
    return x * 0.5F * erfc(x * -0.707106781F);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    // (1 + tanh(u)) / 2 is the sigmoid of 2 u: no cancellation on the negative side.
    const Vec twice = x * fma(x * x, set(0.0713548163F), set(1.59576912F));
    return x / (exp(-twice) + 1.0F);
  } else if constexpr (kActivation == Activation::kRelu) {
    return max(zero(), x);  // in this order NaN stays
  } else if constexpr (kActivation == Activation::kRelu2) {
    const Vec positive = max(zero(), x);
    return positive * positive;
  } else {
    return x;
  }
}

// Calls function.template operator()<kActivation>().
template <typename Function>
MSTAR_VEC void with_activation(Activation activation, Function&& function) {
  switch (activation) {
    case Activation::kNone: function.template operator()<Activation::kNone>(); return;
    case Activation::kSilu: function.template operator()<Activation::kSilu>(); return;
    case Activation::kGelu: function.template operator()<Activation::kGelu>(); return;
    case Activation::kGeluTanh: function.template operator()<Activation::kGeluTanh>(); return;
    case Activation::kRelu: function.template operator()<Activation::kRelu>(); return;
    case Activation::kRelu2: function.template operator()<Activation::kRelu2>(); return;
  }
}

struct Part {
  Share rows;
  Share columns;
};

MSTAR_VEC Part part_of(int64_t rows, int64_t dim, int task, int num_tasks) {
  if (rows == 1) {
    return {{0, 1}, share_of(dim, task, num_tasks)};
  }
  return {share_of(rows, task, num_tasks), {0, dim}};
}

// out = f(a)
template <typename Function>
MSTAR_VEC void map_one(const ElementwiseParams& p, int task, Function&& f) {
  const Part part = part_of(p.rows, p.dim, task, p.num_tasks);
  with_row_type(p.a.dtype, p.out.dtype, [&]<typename Row>() {
    for (int64_t row = part.rows.begin; row < part.rows.end; ++row) {
      const Row a = row_at<Row>(p.a, row);
      const Row out = row_at<Row>(p.out, row);
      for_vectors(
          part.columns.begin,
          part.columns.end,
          [&](int64_t i) { out.put(i, f(a.get(i))); },
          [&](int64_t i, int n) { out.put(i, f(a.get(i, n)), n); });
    }
  });
}

// out = f(a, b)
template <typename Function>
MSTAR_VEC void map_two(const ElementwiseParams& p, int task, Function&& f) {
  const Part part = part_of(p.rows, p.dim, task, p.num_tasks);
  const DType inputs = p.a.dtype == p.b.dtype ? p.a.dtype : DType::kF16;  // f16: none of the two
  with_row_type(inputs, p.out.dtype, [&]<typename Row>() {
    for (int64_t row = part.rows.begin; row < part.rows.end; ++row) {
      const Row a = row_at<Row>(p.a, row);
      const Row b = row_at<Row>(p.b, row);
      const Row out = row_at<Row>(p.out, row);
      for_vectors(
          part.columns.begin,
          part.columns.end,
          [&](int64_t i) { out.put(i, f(a.get(i), b.get(i))); },
          [&](int64_t i, int n) { out.put(i, f(a.get(i, n), b.get(i, n)), n); });
    }
  });
}

// A row of the copy as f32 vectors; the types are f32, bf16 and f16.
template <typename From, typename To>
void convert_elements(const void* x, int64_t from, void* out, int64_t to, int64_t count) {
  const From* source = static_cast<const From*>(x) + from;
  To* target = static_cast<To*>(out) + to;
  for_vectors(
      0,
      count,
      [&](int64_t i) { store(target + i, load(source + i)); },
      [&](int64_t i, int n) { store_n(target + i, load_n(source + i, n), n); });
}

using ConvertRow = void (*)(const void* x, int64_t from, void* out, int64_t to, int64_t count);

template <typename From>
ConvertRow converter_from(DType to) {
  return to == DType::kF32    ? &convert_elements<From, float>
         : to == DType::kBF16 ? &convert_elements<From, bfloat16>
                              : &convert_elements<From, float16>;
}

template <typename T>
void move_elements(const void* x, int64_t x_stride, void* out, int64_t out_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    static_cast<T*>(out)[i * out_stride] = static_cast<const T*>(x)[i * x_stride];
  }
}

// A row of the copy without a change of type.
void move_row(const CopyParams& p, int64_t from, int64_t to, Share columns) {
  const int last = p.dims - 1;
  const int64_t x_stride = p.x_stride[last];
  const int64_t out_stride = p.out_stride[last];
  const int64_t count = columns.end - columns.begin;
  const int64_t size = p.element_bytes;
  const char* x = static_cast<const char*>(p.x) + (from + columns.begin * x_stride) * size;
  char* out = static_cast<char*>(p.out) + (to + columns.begin * out_stride) * size;
  if (x_stride == 1 && out_stride == 1) {
    __builtin_memcpy(out, x, static_cast<size_t>(count * size));
    return;
  }
  switch (size) {
    case 1: move_elements<uint8_t>(x, x_stride, out, out_stride, count); return;
    case 2: move_elements<uint16_t>(x, x_stride, out, out_stride, count); return;
    case 4: move_elements<uint32_t>(x, x_stride, out, out_stride, count); return;
    default: move_elements<uint64_t>(x, x_stride, out, out_stride, count); return;
  }
}

template <typename Row>
MSTAR_VEC bool all_finite(Row x, Share columns) {
  // x - x is zero, or NaN for infinities and NaN: one sum tells.
  Vec sum = zero();
  for_vectors(
      columns.begin,
      columns.end,
      [&](int64_t i) {
        const Vec v = x.get(i);
        sum = sum + (v - v);
      },
      [&](int64_t i, int n) {
        const Vec v = x.get(i, n);
        sum = sum + (v - v);
      });
  return !any(is_nan(sum));
}

}  // namespace

void activate(const ElementwiseParams& p, int task) {
  with_activation(p.activation, [&]<Activation kActivation>() {
    map_one(p, task, [](Vec x) { return activated<kActivation>(x); });
  });
}

void gated_activation(const ElementwiseParams& p, int task) {
  with_activation(p.activation, [&]<Activation kActivation>() {
    map_two(p, task, [](Vec gate, Vec up) { return activated<kActivation>(gate) * up; });
  });
}

void add(const ElementwiseParams& p, int task) {
  map_two(p, task, [](Vec a, Vec b) { return a + b; });
}

void mul(const ElementwiseParams& p, int task) {
  map_two(p, task, [](Vec a, Vec b) { return a * b; });
}

void affine(const ElementwiseParams& p, int task) {
  const Vec scale = set(p.scale);
  const Vec shift = set(p.shift);
  map_one(p, task, [=](Vec x) { return fma(x, scale, shift); });
}

void add_gated(const ElementwiseParams& p, int task) {
  const Part part = part_of(p.rows, p.dim, task, p.num_tasks);
  for (int64_t row = part.rows.begin; row < part.rows.end; ++row) {
    const AnyRow x = row_at<AnyRow>(p.a, row);
    const AnyRow y = row_at<AnyRow>(p.b, row);
    const AnyRow gate = row_at<AnyRow>(p.c, row / p.rows_per_gate);
    const AnyRow out = row_at<AnyRow>(p.out, row);
    for_vectors(
        part.columns.begin,
        part.columns.end,
        [&](int64_t i) { out.put(i, fma(gate.get(i), y.get(i), x.get(i))); },
        [&](int64_t i, int n) { out.put(i, fma(gate.get(i, n), y.get(i, n), x.get(i, n)), n); });
  }
}

void copy(const CopyParams& p, int task) {
  const int last = p.dims - 1;
  int64_t num_rows = 1;
  for (int dim = 0; dim < last; ++dim) {
    num_rows *= p.size[dim];
  }
  const ConvertRow convert = p.x_dtype == DType::kF32    ? converter_from<float>(p.out_dtype)
                             : p.x_dtype == DType::kBF16 ? converter_from<bfloat16>(p.out_dtype)
                                                         : converter_from<float16>(p.out_dtype);
  const Part part = part_of(num_rows, p.size[last], task, p.num_tasks);
  const int64_t count = part.columns.end - part.columns.begin;
  for (int64_t row = part.rows.begin; row < part.rows.end; ++row) {
    int64_t rest = row;
    int64_t from = 0;
    int64_t to = 0;
    for (int dim = last - 1; dim >= 0; --dim) {
      from += rest % p.size[dim] * p.x_stride[dim];
      to += rest % p.size[dim] * p.out_stride[dim];
      rest /= p.size[dim];
    }
    if (p.x_dtype == p.out_dtype) {
      move_row(p, from, to, part.columns);
    } else {
      convert(p.x, from + part.columns.begin, p.out, to + part.columns.begin, count);
    }
  }
}

void check_finite(const CheckFiniteParams& p, int task) {
  const Part part = part_of(p.rows, p.dim, task, p.num_tasks);
  bool finite = true;
  with_row_type(p.x.dtype, p.x.dtype, [&]<typename Row>() {
    for (int64_t row = part.rows.begin; row < part.rows.end; ++row) {
      finite = finite && all_finite(row_at<Row>(p.x, row), part.columns);
    }
  });
  if (!finite) {
    __atomic_store_n(p.flag, uint8_t{1}, __ATOMIC_RELAXED);  // tasks may meet here
  }
}

}  // namespace mstar::MSTAR_ISA_NAMESPACE
