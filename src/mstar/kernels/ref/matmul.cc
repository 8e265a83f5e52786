#include "mstar/kernels/ref/matmul.h"

#include <cmath>
#include <numbers>

#include "mstar/tensor/dispatch.h"

namespace mstar::ref {

namespace {

double at(const Tensor& x, int64_t row, int64_t column) {
  return dispatch_activation(x.dtype(), [&]<typename T>() -> double {
    return to_float(x.data<T>()[row * x.stride(0) + column]);
  });
}

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kSilu: return x / (1.0 + std::exp(-x));
    case Activation::kGelu: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::kRelu: return x > 0.0 ? x : 0.0;
    case Activation::kRelu2: return x > 0.0 ? x * x : 0.0;
  }
  return x;
}

}  // namespace

void linear(const Tensor& x, const Tensor& weight, const Epilogue& epilogue, Tensor& out) {
  const Tensor bias = epilogue.bias.defined() ? epilogue.bias.view({1, -1}) : Tensor();
  for (int64_t row = 0; row < x.dim(0); ++row) {
    for (int64_t column = 0; column < weight.dim(0); ++column) {
      double sum = 0.0;
      for (int64_t k = 0; k < x.dim(1); ++k) {
        sum += at(x, row, k) * at(weight, column, k);
      }
      sum *= static_cast<double>(epilogue.alpha);
      if (bias.defined()) {
        sum += at(bias, 0, column);
      }
      sum = activated(sum, epilogue.activation);
      if (epilogue.residual.defined()) {
        sum += at(epilogue.residual, row, column);
      }
      dispatch_activation(out.dtype(), [&]<typename T>() {
        out.data<T>()[row * out.stride(0) + column] = from_float<T>(static_cast<float>(sum));
      });
    }
  }
}

}  // namespace mstar::ref
