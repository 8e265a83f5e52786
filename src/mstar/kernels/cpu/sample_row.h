#pragma once

#include "mstar/kernels/cpu/sampling_kernels.h"
#include "mstar/kernels/ops/sampling.h"

// Sampling of one row, in passes over the vocabulary and no full sort. Never allocates.
namespace mstar {

// Working memory of one row of `vocab` elements; each pointer leads to `vocab` elements but
// pieces, which has one for every kSamplingPiece of them.
struct SampleScratch {
  float* logits;
  float* values;
  float* weights;
  float* sorted;
  int32_t* indices;
  float* pieces;
};

// f32 elements a SampleScratch takes, and its pointers into such memory.
int64_t scratch_elements(int64_t vocab);
SampleScratch scratch_at(float* memory, int64_t vocab);

struct SampleInput {
  SamplingInput logits;
  const int32_t* seen = nullptr;    // bit set, or null
  const int32_t* counts = nullptr;  // or null
  const float* bias = nullptr;      // or null
};

// The token drawn; `probs` [vocab] or null gets the distribution it was drawn from.
int32_t sample_row(const SamplingKernels& kernels,
                   const SampleInput& input,
                   const SamplingRow& row,
                   const SampleScratch& scratch,
                   float* probs);

// The k largest, largest first, ties by the smaller index.
void top_k_row(const SamplingKernels& kernels,
               const SamplingInput& x,
               int64_t k,
               const SampleScratch& scratch,
               float* values,
               int32_t* indices);

// The first index of the largest element. `pieces` as in SampleScratch.
int32_t argmax_row(const SamplingKernels& kernels, const SamplingInput& x, float* pieces);

}  // namespace mstar
