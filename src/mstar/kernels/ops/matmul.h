#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mstar/base/thread_pool.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/tensor/stream.h"

namespace mstar {

// What a weight is stored as once packed; kKeep keeps the type it came in.
enum class WeightFormat : uint8_t { kKeep, kF32, kBF16, kInt8 };

// How f32 or bf16 activations meet a block-quantized weight. kExact decodes the weight and
// multiplies in f32. kInt8 rounds each 32 consecutive activations of a row to int8 with a scale of
// their own and dots integers, as llama.cpp does: up to three times faster with one row, with a
// relative error of about 0.5 % in each block's sum (docs/decisions/010-matmul.md). It serves all
// block types; weights of other types stay exact.
enum class Activations : uint8_t { kExact, kInt8 };

// A weight matrix [out_features n, in_features k] rearranged once into the panels that the
// kernels of this machine read front to back. Immutable and shared. Thread-safe after pack().
class PackedWeight {
 public:
  PackedWeight() = default;

  // `weight` is [n, k] (as torch Linear), f32, bf16, f16 or a GGUF block type; it may be dropped
  // afterwards. kInt8: symmetric, one f32 scale per output row.
  static PackedWeight pack(const Tensor& weight,
                           ThreadPool& pool,
                           WeightFormat format = WeightFormat::kKeep,
                           Activations activations = Activations::kExact);

  // The rows of several such matrices of one type and width, one below the other.
  static PackedWeight pack(std::span<const Tensor> parts,
                           ThreadPool& pool,
                           WeightFormat format = WeightFormat::kKeep,
                           Activations activations = Activations::kExact);

  bool defined() const { return data_ != nullptr; }

  int64_t out_features() const;
  int64_t in_features() const;
  DType dtype() const;              // element type as stored
  int64_t size_bytes() const;       // what one pass over the weight reads
  bool rounds_activations() const;  // Activations::kInt8 took effect

  // The values as the kernels see them, [n, k] f32: for tests and for embedding tables that
  // share a tied head.
  Tensor unpack() const;

  struct Data;  // kernels/cpu/packed_weight.h

  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

// What happens to the product before it is stored, in this order; undefined tensors are absent.
struct Epilogue {
  Tensor bias = {};  // [n] f32 or bf16
  Activation activation = Activation::kNone;
  Tensor residual = {};  // [m, n] f32 or bf16, added; may be `out`
  float alpha = 1.0F;    // multiplies the product before the bias
};

namespace ops {

// out = epilogue(x @ weight^T)
//   x    [m, k] f32 or bf16, dense rows (any row stride)
//   out  [m, n] f32 or bf16, dense rows
// Accumulates in f32. Products are exact in f32 for f32 activations; bf16 activations with bf16
// weights may use the machine's bf16 dot. Each output element is summed over k in an order that
// depends on the weight alone, so a row's result does not depend on m or on its place: batch of N
// equals N singles bit for bit.
void linear(Stream& stream,
            const Tensor& x,
            const PackedWeight& weight,
            const Epilogue& epilogue,
            Tensor& out);

// For each expert e: out[r] = epilogue(x[r] @ weights[e]^T) for the rows r in
// [indptr[e], indptr[e + 1]). Experts without rows cost nothing.
//   x       [rows, k], out [rows, n]
//   indptr  [num_experts + 1] i32, read when the op runs; indptr[num_experts] <= rows
// The epilogue's bias must be absent; residual allowed.
void grouped_linear(Stream& stream,
                    const Tensor& x,
                    const std::vector<PackedWeight>& weights,
                    const Tensor& indptr,
                    const Epilogue& epilogue,
                    Tensor& out);

// out[b] = alpha * a[b] @ b[b]^T for operands that change every step (no packing kept).
//   a [batch, m, k], b [batch, n, k], out [batch, m, n]; f32 or bf16, dense rows; or without the
//   batch dim.
void matmul_nt(Stream& stream, const Tensor& a, const Tensor& b, float alpha, Tensor& out);

}  // namespace ops
}  // namespace mstar
