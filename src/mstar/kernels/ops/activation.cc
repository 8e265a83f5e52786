#include "mstar/kernels/ops/activation.h"

#include <cstring>
#include <type_traits>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/cpu/activation.h"
#include "mstar/kernels/ops/choose.h"
#include "mstar/kernels/ref/activation.h"
#include "mstar/tensor/dispatch.h"

namespace mstar {

Activation parse_activation(std::string_view name) {
  if (name == "silu" || name == "swish") {
    return Activation::kSilu;
  }
  if (name == "gelu") {
    return Activation::kGelu;
  }
  if (name == "gelu_pytorch_tanh" || name == "gelu_tanh" || name == "gelu_new") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") {
    return Activation::kRelu;
  }
  if (name == "relu2") {
    return Activation::kRelu2;
  }
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[activation] found \"",
                      name,
                      "\", expected silu, gelu, gelu_pytorch_tanh, relu or relu2"));
}

namespace ops {

namespace {

using ElementwiseKernel = void (*)(const ElementwiseParams&, int);

// Operands of one shape. Dense ones become a single long row, so that short rows cost nothing.
ElementwiseParams params_of(const Tensor& a, const Tensor& b, const Tensor& out) {
  MSTAR_CHECK(a.shape() == out.shape() && (!b.defined() || b.shape() == out.shape()),
              a.to_string(),
              b.defined() ? " and " : "",
              b.defined() ? b.to_string() : "",
              " -> ",
              out.to_string());
  ElementwiseParams p;
  if (out.num_elements() == 0) {
    return p;
  }
  if (a.is_contiguous() && out.is_contiguous() && (!b.defined() || b.is_contiguous())) {
    const Shape flat{out.num_elements()};
    p.a = rows_of(a.view(flat));
    p.b = b.defined() ? rows_of(b.view(flat)) : Rows{};
    p.out = rows_of(out.view(flat));
    p.rows = 1;
    p.dim = out.num_elements();
    return p;
  }
  p.a = rows_of(a);
  p.b = rows_of(b);
  p.out = rows_of(out);
  p.dim = out.dim(-1);
  p.rows = out.num_elements() / p.dim;
  return p;
}

void run(Stream& stream, const char* name, ElementwiseParams& p, ElementwiseKernel kernel) {
  CpuStream& cpu = as_cpu(stream);
  if (p.rows > 0) {
    p.num_tasks = p.rows == 1 ? row_tasks(cpu, p.dim / 64, 64) : row_tasks(cpu, p.rows, p.dim);
    cpu.enqueue(name, p.num_tasks, p, kernel);
  }
}

// Merges neighbouring dims that are one run in both tensors; sizes of 1 vanish.
CopyParams copy_params(const Tensor& x, const Tensor& out) {
  CopyParams p;
  p.x = x.bytes();
  p.out = out.bytes();
  p.x_dtype = x.dtype();
  p.out_dtype = out.dtype();
  p.element_bytes = element_bytes(x.dtype());
  p.dims = 0;
  for (int dim = 0; dim < x.num_dims(); ++dim) {
    if (x.dim(dim) == 1) {
      continue;
    }
    const int last = p.dims - 1;
    if (p.dims > 0 && p.x_stride[last] == x.dim(dim) * x.stride(dim) &&
        p.out_stride[last] == out.dim(dim) * out.stride(dim)) {
      p.size[last] *= x.dim(dim);
      p.x_stride[last] = x.stride(dim);
      p.out_stride[last] = out.stride(dim);
      continue;
    }
    p.size[p.dims] = x.dim(dim);
    p.x_stride[p.dims] = x.stride(dim);
    p.out_stride[p.dims] = out.stride(dim);
    ++p.dims;
  }
  if (p.dims == 0) {
    p.dims = 1;
    p.size[0] = p.x_stride[0] = p.out_stride[0] = 1;
  }
  return p;
}

// `value` as the type stores it, in the low bytes.
uint64_t bits_of(float value, DType dtype) {
  uint64_t bits = 0;
  dispatch(dtype, [&]<typename T>() {
    T stored{};
    if constexpr (std::is_arithmetic_v<T>) {
      stored = static_cast<T>(value);
    } else {
      stored = from_float<T>(value);
    }
    std::memcpy(&bits, &stored, sizeof(stored));
  });
  return bits;
}

// Integers that change their type are rare and few.
bool has_fast_copy(const CopyParams& p) {
  return p.x_dtype == p.out_dtype || (is_floating(p.x_dtype) && is_floating(p.out_dtype));
}

}  // namespace

void activate(Stream& stream, const Tensor& x, Activation activation, Tensor& out) {
  ElementwiseParams p = params_of(x, {}, out);
  p.activation = activation;
  run(stream, "activate", p, MSTAR_KERNEL(activate));
}

void gated_activation(Stream& stream, const Tensor& gate_up, Activation activation, Tensor& out) {
  const int64_t dim = gate_up.dim(-1) / 2;
  gated_activation(
      stream, gate_up.slice(-1, 0, dim), gate_up.slice(-1, dim, gate_up.dim(-1)), activation, out);
}

void gated_activation(Stream& stream,
                      const Tensor& gate,
                      const Tensor& up,
                      Activation activation,
                      Tensor& out) {
  ElementwiseParams p = params_of(gate, up, out);
  p.activation = activation;
  run(stream, "gated_activation", p, MSTAR_KERNEL(gated_activation));
}

void add(Stream& stream, const Tensor& a, const Tensor& b, Tensor& out) {
  ElementwiseParams p = params_of(a, b, out);
  run(stream, "add", p, MSTAR_KERNEL(add));
}

void mul(Stream& stream, const Tensor& a, const Tensor& b, Tensor& out) {
  ElementwiseParams p = params_of(a, b, out);
  run(stream, "mul", p, MSTAR_KERNEL(mul));
}

void affine(Stream& stream, const Tensor& x, float scale, float shift, Tensor& out) {
  ElementwiseParams p = params_of(x, {}, out);
  p.scale = scale;
  p.shift = shift;
  run(stream, "affine", p, MSTAR_KERNEL(affine));
}

void add_gated(Stream& stream, const Tensor& x, const Tensor& gate, const Tensor& y, Tensor& out) {
  MSTAR_CHECK(x.shape() == out.shape() && y.shape() == out.shape(),
              x.to_string(),
              " and ",
              y.to_string(),
              " -> ",
              out.to_string());
  ElementwiseParams p;
  if (out.num_elements() == 0) {
    return;
  }
  p.a = rows_of(x);
  p.b = rows_of(y);
  p.c = rows_of(gate);
  p.out = rows_of(out);
  p.dim = out.dim(-1);
  p.rows = out.num_elements() / p.dim;
  MSTAR_CHECK(gate.dim(-1) == p.dim, "gate ", gate.to_string(), " for ", out.to_string());
  const int64_t gates = gate.num_elements() / p.dim;
  MSTAR_CHECK(gates > 0 && p.rows % gates == 0, p.rows, " rows under ", gates, " gates");
  p.rows_per_gate = p.rows / gates;
  run(stream, "add_gated", p, MSTAR_KERNEL(add_gated));
}

void copy(Stream& stream, const Tensor& x, Tensor& out) {
  MSTAR_CHECK(x.shape() == out.shape() && !is_quantized(x.dtype()) && !is_quantized(out.dtype()),
              x.to_string(),
              " -> ",
              out.to_string());
  CpuStream& cpu = as_cpu(stream);
  if (x.num_elements() > 0) {
    CopyParams p = copy_params(x, out);
    p.num_tasks = row_tasks(cpu, x.num_elements() / 64, 64);
    cpu.enqueue("copy", p.num_tasks, p, has_fast_copy(p) ? MSTAR_KERNEL(copy) : &ref::copy);
  }
}

void fill(Stream& stream, float value, Tensor& out) {
  MSTAR_CHECK(!is_quantized(out.dtype()), out.to_string());
  CpuStream& cpu = as_cpu(stream);
  if (out.num_elements() > 0) {
    CopyParams p = copy_params(out, out);
    p.x = nullptr;
    p.x_dtype = DType::kF32;
    p.value = value;
    p.value_bits = bits_of(value, out.dtype());
    p.num_tasks = row_tasks(cpu, out.num_elements() / 64, 64);
    cpu.enqueue("fill", p.num_tasks, p, reference_kernels() ? &ref::copy : MSTAR_BY_ISA(fill));
  }
}

void check_finite(Stream& stream, const Tensor& x, Tensor& flag) {
  MSTAR_CHECK(flag.num_elements() == 1 && flag.dtype() == DType::kU8, flag.to_string());
  if (x.num_elements() == 0) {
    return;
  }
  CpuStream& cpu = as_cpu(stream);
  CheckFiniteParams p;
  const Tensor flat = x.is_contiguous() ? x.view({x.num_elements()}) : x;
  p.x = rows_of(flat);
  p.dim = flat.dim(-1);
  p.rows = flat.num_elements() / p.dim;
  p.flag = flag.data<uint8_t>();
  p.num_tasks = p.rows == 1 ? row_tasks(cpu, p.dim / 64, 64) : row_tasks(cpu, p.rows, p.dim);
  cpu.enqueue("check_finite", p.num_tasks, p, MSTAR_KERNEL(check_finite));
}

}  // namespace ops
}  // namespace mstar
