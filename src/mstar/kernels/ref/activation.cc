#include "mstar/kernels/ref/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "mstar/kernels/ref/element.h"

namespace mstar::ref {

namespace {

// Calls function(row, column) for the elements that are this task's.
template <typename Function>
void for_each_element(const ElementwiseParams& p, int task, Function&& function) {
  const Range rows = p.rows == 1 ? Range{0, 1} : share(p.rows, task, p.num_tasks);
  const Range columns = p.rows == 1 ? share(p.dim, task, p.num_tasks) : Range{0, p.dim};
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      function(row, column);
    }
  }
}

// One element with conversion; integers never pass through a floating type.
void copy_element(const CopyParams& p, int64_t from, int64_t to) {
  dispatch(p.x_dtype, [&]<typename From>() {
    From value;
    if constexpr (std::is_same_v<From, float>) {
      value = p.x == nullptr ? p.value : static_cast<const float*>(p.x)[from];
    } else {
      value = static_cast<const From*>(p.x)[from];
    }
    dispatch(p.out_dtype, [&]<typename To>() {
      To& out = static_cast<To*>(p.out)[to];
      if constexpr (std::is_same_v<From, To>) {
        out = value;
      } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
        out = static_cast<To>(value);
      } else if constexpr (std::is_integral_v<To>) {
        out = static_cast<To>(to_float(value));
      } else if constexpr (std::is_integral_v<From>) {
        out = from_float<To>(static_cast<float>(value));
      } else {
        out = from_float<To>(to_float(value));
      }
    });
  });
}

}  // namespace

double activation_value(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kSilu: return x / (1.0 + std::exp(-x));
    case Activation::kGelu: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::kRelu: return std::isnan(x) ? x : std::max(x, 0.0);
    case Activation::kRelu2: return std::isnan(x) ? x : std::max(x, 0.0) * std::max(x, 0.0);
  }
  return x;
}

void activate(const ElementwiseParams& p, int task) {
  for_each_element(p, task, [&](int64_t row, int64_t column) {
    store(p.out, row, column, activation_value(p.activation, load(p.a, row, column)));
  });
}

void gated_activation(const ElementwiseParams& p, int task) {
  for_each_element(p, task, [&](int64_t row, int64_t column) {
    const double gate = activation_value(p.activation, load(p.a, row, column));
    store(p.out, row, column, gate * load(p.b, row, column));
  });
}

void add(const ElementwiseParams& p, int task) {
  for_each_element(p, task, [&](int64_t row, int64_t column) {
    store(p.out, row, column, load(p.a, row, column) + load(p.b, row, column));
  });
}

void mul(const ElementwiseParams& p, int task) {
  for_each_element(p, task, [&](int64_t row, int64_t column) {
    store(p.out, row, column, load(p.a, row, column) * load(p.b, row, column));
  });
}

void affine(const ElementwiseParams& p, int task) {
  for_each_element(p, task, [&](int64_t row, int64_t column) {
    store(p.out, row, column, load(p.a, row, column) * p.scale + p.shift);
  });
}

void add_gated(const ElementwiseParams& p, int task) {
  for_each_element(p, task, [&](int64_t row, int64_t column) {
    const double gate = load(p.c, row / p.rows_per_gate, column);
    store(p.out, row, column, load(p.a, row, column) + gate * load(p.b, row, column));
  });
}

void copy(const CopyParams& p, int task) {
  int64_t total = 1;
  for (int dim = 0; dim < p.dims; ++dim) {
    total *= p.size[dim];
  }
  const Range elements = share(total, task, p.num_tasks);
  for (int64_t element = elements.begin; element < elements.end; ++element) {
    int64_t rest = element;
    int64_t from = 0;
    int64_t to = 0;
    for (int dim = p.dims - 1; dim >= 0; --dim) {
      from += rest % p.size[dim] * p.x_stride[dim];
      to += rest % p.size[dim] * p.out_stride[dim];
      rest /= p.size[dim];
    }
    copy_element(p, from, to);
  }
}

void check_finite(const CheckFiniteParams& p, int task) {
  const Range rows = p.rows == 1 ? Range{0, 1} : share(p.rows, task, p.num_tasks);
  const Range columns = p.rows == 1 ? share(p.dim, task, p.num_tasks) : Range{0, p.dim};
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      if (!std::isfinite(load(p.x, row, column))) {
        __atomic_store_n(p.flag, uint8_t{1}, __ATOMIC_RELAXED);  // tasks may meet here
        return;
      }
    }
  }
}

}  // namespace mstar::ref
