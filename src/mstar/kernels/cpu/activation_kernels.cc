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

// A dense row through f32 vectors; the types are f32, bf16 and f16.
template <typename From, typename To>
void convert_dense(const From* x, To* out, int64_t count) {
  for_vectors(
      0,
      count,
      [&](int64_t i) { store(out + i, load(x + i)); },
      [&](int64_t i, int n) { store_n(out + i, load_n(x + i, n), n); });
}

// A row of the copy with a change of type; strides in elements.
template <typename From, typename To>
void convert_elements(const void* x,
                      int64_t x_stride,
                      void* out,
                      int64_t out_stride,
                      int64_t count) {
  const auto* from = static_cast<const From*>(x);
  auto* to = static_cast<To*>(out);
  if (x_stride == 1 && out_stride == 1) {
    convert_dense(from, to, count);
    return;
  }
  constexpr int64_t kPiece = 64;
  From piece[kPiece];
  To converted[kPiece];
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t size = count - begin < kPiece ? count - begin : kPiece;
    for (int64_t i = 0; i < size; ++i) {
      piece[i] = from[(begin + i) * x_stride];
    }
    convert_dense(piece, converted, size);
    for (int64_t i = 0; i < size; ++i) {
      to[(begin + i) * out_stride] = converted[i];
    }
  }
}

using ConvertRow = void (*)(const void*, int64_t, void*, int64_t, int64_t);

template <typename From>
ConvertRow converter_from(DType to) {
  return to == DType::kF32    ? &convert_elements<From, float>
         : to == DType::kBF16 ? &convert_elements<From, bfloat16>
                              : &convert_elements<From, float16>;
}

ConvertRow converter(DType from, DType to) {
  return from == DType::kF32    ? converter_from<float>(to)
         : from == DType::kBF16 ? converter_from<bfloat16>(to)
                                : converter_from<float16>(to);
}

template <typename T>
void move_elements(const void* x, int64_t x_stride, void* out, int64_t out_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    static_cast<T*>(out)[i * out_stride] = static_cast<const T*>(x)[i * x_stride];
  }
}

// A row of the copy without a change of type.
void move_row(const void* x,
              int64_t x_stride,
              void* out,
              int64_t out_stride,
              int64_t count,
              int64_t size) {
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

template <typename T>
void fill_elements(void* out, int64_t stride, int64_t count, uint64_t bits) {
  auto* to = static_cast<T*>(out);
  const auto value = static_cast<T>(bits);
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = value;
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    to[i * stride] = value;
  }
}

// Calls function(from, to) with the places of the rows' first elements.
template <typename Function>
void for_copied_rows(const CopyParams& p, const Share& rows, Function&& function) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    int64_t rest = row;
    int64_t from = 0;
    int64_t to = 0;
    for (int dim = p.dims - 2; dim >= 0; --dim) {
      from += rest % p.size[dim] * p.x_stride[dim];
      to += rest % p.size[dim] * p.out_stride[dim];
      rest /= p.size[dim];
    }
    function(from, to);
  }
}

Part copied_part(const CopyParams& p, int task) {
  int64_t num_rows = 1;
  for (int dim = 0; dim < p.dims - 1; ++dim) {
    num_rows *= p.size[dim];
  }
  return part_of(num_rows, p.size[p.dims - 1], task, p.num_tasks);
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
  const bool same = p.x_dtype == p.out_dtype;
  const ConvertRow convert = same ? nullptr : converter(p.x_dtype, p.out_dtype);
  const int64_t out_bytes = same ? p.element_bytes : p.out_dtype == DType::kF32 ? 4 : 2;
  const int64_t x_stride = p.x_stride[p.dims - 1];
  const int64_t out_stride = p.out_stride[p.dims - 1];
  const Part part = copied_part(p, task);
  const int64_t first = part.columns.begin;
  const int64_t count = part.columns.end - first;
  for_copied_rows(p, part.rows, [&](int64_t from, int64_t to) {
    const char* x = static_cast<const char*>(p.x) + (from + first * x_stride) * p.element_bytes;
    char* out = static_cast<char*>(p.out) + (to + first * out_stride) * out_bytes;
    if (same) {
      move_row(x, x_stride, out, out_stride, count, p.element_bytes);
    } else {
      convert(x, x_stride, out, out_stride, count);
    }
  });
}

void fill(const CopyParams& p, int task) {
  const int64_t stride = p.out_stride[p.dims - 1];
  const Part part = copied_part(p, task);
  const int64_t count = part.columns.end - part.columns.begin;
  for_copied_rows(p, part.rows, [&](int64_t, int64_t to) {
    void* out = static_cast<char*>(p.out) + (to + part.columns.begin * stride) * p.element_bytes;
    switch (p.element_bytes) {
      case 1: fill_elements<uint8_t>(out, stride, count, p.value_bits); return;
      case 2: fill_elements<uint16_t>(out, stride, count, p.value_bits); return;
      case 4: fill_elements<uint32_t>(out, stride, count, p.value_bits); return;
      default: fill_elements<uint64_t>(out, stride, count, p.value_bits); return;
    }
  });
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
