#pragma once

#include <cstdint>
#include <string_view>

#include "mstar/tensor/stream.h"

namespace mstar {

// Hugging Face's `hidden_act` names: silu, gelu (erf), gelu_pytorch_tanh / gelu_tanh, relu, relu2.
enum class Activation : uint8_t { kNone, kSilu, kGelu, kGeluTanh, kRelu, kRelu2 };

// Throws Error(kInvalidArgument) listing the known names.
Activation parse_activation(std::string_view name);

namespace ops {

// All tensors here: f32 or bf16 (inputs and output may differ), computed in f32, any shape with
// dense rows; `out` has the shape of x and may be x.

void activate(Stream& stream, const Tensor& x, Activation activation, Tensor& out);

// out = activation(gate_up[:, :n]) * gate_up[:, n:]
//   gate_up  [rows, 2n] gate first
//   out      [rows, n]
void gated_activation(Stream& stream, const Tensor& gate_up, Activation activation, Tensor& out);

// out = activation(gate) * up, two tensors.
void gated_activation(Stream& stream,
                      const Tensor& gate,
                      const Tensor& up,
                      Activation activation,
                      Tensor& out);

void add(Stream& stream, const Tensor& a, const Tensor& b, Tensor& out);
void mul(Stream& stream, const Tensor& a, const Tensor& b, Tensor& out);

// out = x * scale + shift, scalars fixed at enqueue.
void affine(Stream& stream, const Tensor& x, float scale, float shift, Tensor& out);

// out = x + gate * y, gate [rows, n] with rows dividing x's rows: gate row i serves a run of
// (x rows / gate rows) consecutive rows.
void add_gated(Stream& stream, const Tensor& x, const Tensor& gate, const Tensor& y, Tensor& out);

// Converts between plain types and/or makes strided tensors contiguous (any strides in; `out`
// contiguous or strided, same shape).
void copy(Stream& stream, const Tensor& x, Tensor& out);

void fill(Stream& stream, float value, Tensor& out);

// *flag (u8[1]) becomes 1 when an element of x is NaN or infinite; never back to 0.
void check_finite(Stream& stream, const Tensor& x, Tensor& flag);

}  // namespace ops
}  // namespace mstar
