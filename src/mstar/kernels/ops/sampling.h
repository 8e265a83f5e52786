#pragma once

#include <cstdint>

#include "mstar/tensor/stream.h"

namespace mstar {

// One row's parameters, an array of them is the op's input so that a replayed step reads new
// ones. Order: penalties, logit bias, temperature, top-k, top-p on the renormalised rest, min-p;
// softmax in f32.
struct SamplingRow {
  float temperature = 1.0F;         // 0: greedy (after the penalties)
  float top_p = 1.0F;               // 1: off
  float min_p = 0.0F;               // 0: off
  int32_t top_k = 0;                // 0: off
  float repetition_penalty = 1.0F;  // seen tokens: logit > 0 ? logit / p : logit * p
  float presence_penalty = 0.0F;    // subtracted once from generated tokens
  float frequency_penalty = 0.0F;   // subtracted per occurrence among generated tokens
  uint32_t flags = 0;               // reserved, 0
  uint64_t seed = 0;                // with stream and step the counter of the random number
  uint64_t stream = 0;              // hash of the sampler's name
  uint64_t step = 0;
};

// Philox4x32-10 (Salmon et al. 2011): key = seed, counter = (step, stream). One uniform in [0, 1)
// per (seed, stream, step): results do not depend on the batch.
float philox_uniform(uint64_t seed, uint64_t stream, uint64_t step);

namespace ops {

void softmax(Stream& stream, const Tensor& x, Tensor& out);  // over the last dim, f32 or bf16

// The k largest of each row with their indices, largest first, ties by the smaller index.
//   x [rows, n] f32, values [rows, k] f32, indices [rows, k] i32
void top_k(Stream& stream, const Tensor& x, Tensor& values, Tensor& indices);

void argmax(Stream& stream, const Tensor& x, Tensor& indices);  // [rows, n] -> [rows] i32

// Draws one token per row.
//   logits         [rows, vocab] f32 or bf16
//   rows           SamplingRow[rows] as u8 [rows, sizeof(SamplingRow)], read when the op runs
//   seen           [rows, ceil(vocab / 32)] i32 bit sets of prompt and generated tokens; undefined
//                  when no row has a repetition penalty
//   counts         [rows, vocab] i32 occurrences among generated tokens; undefined without
//                  presence and frequency penalties
//   logit_bias     [rows, vocab] f32 or undefined
//   tokens         [rows] i32
//   probs          [rows, vocab] f32, the distribution drawn from (zero outside), or undefined
void sample(Stream& stream,
            const Tensor& logits,
            const Tensor& rows,
            const Tensor& seen,
            const Tensor& counts,
            const Tensor& logit_bias,
            Tensor& tokens,
            Tensor& probs);

// Standard normal numbers: elements 4 i … 4 i + 3 of the tensor from Philox (seed, stream, i), two
// pairs by Box-Muller in f32; the same on every machine and thread count.
void fill_normal(Stream& stream, uint64_t seed, uint64_t stream_id, Tensor& out);

}  // namespace ops
}  // namespace mstar
