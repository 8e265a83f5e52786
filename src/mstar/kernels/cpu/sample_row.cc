#include "mstar/kernels/cpu/sample_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "mstar/tensor/float16.h"

namespace mstar {

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t num_pieces(int64_t n) {
  return (n + kSamplingPiece - 1) / kSamplingPiece;
}

float element(const SamplingInput& x, int64_t index) {
  return x.is_bf16 ? to_float(static_cast<const bfloat16*>(x.data)[index])
                   : static_cast<const float*>(x.data)[index];
}

// Floats in their order as integers, so that bisection needs at most 32 steps.
int32_t order_of(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

float value_of(int32_t order) {
  return std::bit_cast<float>(order < 0 ? order ^ 0x7fffffff : order);
}

int32_t middle(int32_t low, int32_t high) {
  return static_cast<int32_t>((int64_t{low} + int64_t{high}) >> 1);
}

// The tokens that may still be drawn, by rising id: `size` of scratch.values and indices.
struct Candidates {
  int64_t size = 0;
};

// Keeps what is above `cut` and the first `num_ties` that equal it, in order.
void keep_above(const SampleScratch& scratch,
                Candidates& candidates,
                float cut,
                int64_t num_ties,
                bool with_weights) {
  int64_t kept = 0;
  for (int64_t index = 0; index < candidates.size; ++index) {
    const float value = scratch.values[index];
    if (value > cut || (value == cut && num_ties-- > 0)) {
      scratch.values[kept] = value;
      scratch.indices[kept] = scratch.indices[index];
      if (with_weights) {
        scratch.weights[kept] = scratch.weights[index];
      }
      ++kept;
    }
  }
  candidates.size = kept;
}

// A value that at least k elements reach, and not many more.
float top_k_bound(const SamplingKernels& kernels,
                  const SamplingInput& x,
                  int64_t k,
                  float largest,
                  const SampleScratch& scratch) {
  const int64_t pieces = num_pieces(x.n);
  if (k <= pieces) {  // the k-th largest of the pieces' maxima: k pieces have one that large
    std::copy_n(scratch.pieces, pieces, scratch.sorted);
    std::nth_element(
        scratch.sorted, scratch.sorted + k - 1, scratch.sorted + pieces, std::greater<>());
    return scratch.sorted[k - 1];
  }
  int32_t low = order_of(std::numeric_limits<float>::lowest());
  int32_t high = order_of(largest);
  if (kernels.count_at_least(x, value_of(low)) <= k) {
    return kLowest;
  }
  while (low + 1 < high) {
    const int32_t between = middle(low, high);
    const int64_t count = kernels.count_at_least(x, value_of(between));
    if (count < k) {
      high = between;
      continue;
    }
    low = between;
    if (count <= k + k / 8 + 64) {
      break;
    }
  }
  return value_of(low);
}

// The k largest elements as candidates.
Candidates take_top_k(const SamplingKernels& kernels,
                      const SamplingInput& x,
                      int64_t k,
                      float largest,
                      const SampleScratch& scratch) {
  Candidates candidates;
  const float bound = top_k_bound(kernels, x, k, largest, scratch);
  candidates.size = kernels.collect(x, scratch.pieces, bound, scratch.values, scratch.indices);
  if (candidates.size > k) {
    float* sorted = scratch.sorted;
    std::copy_n(scratch.values, candidates.size, sorted);
    std::nth_element(sorted, sorted + k - 1, sorted + candidates.size, std::greater<>());
    const float cut = sorted[k - 1];
    const int64_t above =
        std::count_if(sorted, sorted + k - 1, [cut](float value) { return value > cut; });
    keep_above(scratch, candidates, cut, k - above, false);
  }
  return candidates;
}

// From logits to weights: exp((x - largest) * scale).
struct Softness {
  float largest;
  float scale;
};

// Keeps the smallest set of the most probable candidates whose weights reach `target`. The
// adjusted logits are no longer needed: their memory holds the weights of the last few.
void take_top_p(const SamplingKernels& kernels,
                const Softness& softness,
                double target,
                const SampleScratch& scratch,
                Candidates& candidates) {
  // Weights >= high do not reach the target, those >= low do: the cut lies in [low, high). What
  // is still in question is copied together now and then, so that all passes cost a few full ones.
  int32_t low = 0;
  int32_t high = order_of(1.0F) + 1;  // the largest weight is 1
  double mass_above = 0.0;
  int64_t count_above = 0;
  int64_t count_low = candidates.size;
  const float* open = scratch.weights;
  int64_t open_size = candidates.size;
  double mass_settled = 0.0;
  int64_t count_settled = 0;
  while (low + 1 < high && count_low - count_above > 32) {
    const int32_t between = middle(low, high);
    int64_t count = 0;
    const double mass =
        mass_settled + kernels.mass_at_least(open, open_size, value_of(between), &count);
    count += count_settled;
    if (mass >= target) {
      low = between;
      count_low = count;
    } else {
      high = between;
      mass_above = mass;
      count_above = count;
    }
    if (4 * (count_low - count_above) < open_size) {
      const float least = value_of(low);
      const float beyond = value_of(high);
      int64_t kept = 0;
      for (int64_t index = 0; index < open_size; ++index) {
        const float weight = open[index];
        scratch.sorted[kept] = weight;
        kept += weight >= least && weight < beyond ? 1 : 0;
      }
      open = scratch.sorted;
      open_size = kept;
      mass_settled = mass_above;
      count_settled = count_above;
    }
  }
  // Logits of the band, largest first; equal weights of different logits included.
  int64_t band = 0;
  for (int64_t index = 0; index < candidates.size; ++index) {
    const int32_t weight = order_of(scratch.weights[index]);
    if (weight >= low && weight < high) {
      scratch.sorted[band++] = scratch.values[index];
    }
  }
  std::sort(scratch.sorted, scratch.sorted + band, std::greater<>());
  kernels.exponentials(
      {scratch.sorted, false, band}, softness.largest, softness.scale, scratch.logits);
  int64_t kept = 0;
  while (kept < band && (mass_above < target || (kept == 0 && count_above == 0))) {
    mass_above += static_cast<double>(scratch.logits[kept]);
    ++kept;
  }
  if (kept == 0) {  // the target was reached by what lies above the band
    const float cut = value_of(high);
    int64_t out = 0;
    for (int64_t index = 0; index < candidates.size; ++index) {
      if (scratch.weights[index] >= cut) {
        scratch.values[out] = scratch.values[index];
        scratch.indices[out] = scratch.indices[index];
        scratch.weights[out++] = scratch.weights[index];
      }
    }
    candidates.size = out;
    return;
  }
  const float cut = scratch.sorted[kept - 1];
  const int64_t ties = std::count(scratch.sorted, scratch.sorted + kept, cut);
  keep_above(scratch, candidates, cut, ties, true);
}

void take_min_p(float min_p, const SampleScratch& scratch, Candidates& candidates) {
  int64_t kept = 0;
  for (int64_t index = 0; index < candidates.size; ++index) {
    if (scratch.weights[index] >= min_p) {
      scratch.indices[kept] = scratch.indices[index];
      scratch.weights[kept++] = scratch.weights[index];
    }
  }
  candidates.size = kept;
}

// The first of `weights` at which the running sum exceeds `target`; the last positive one when
// rounding leaves none. Negative when all are zero.
int64_t draw(const float* weights, int64_t size, double target) {
  double sum = 0.0;
  int64_t drawn = -1;
  for (int64_t index = 0; index < size; ++index) {
    if (weights[index] > 0.0F) {
      drawn = index;
      sum += static_cast<double>(weights[index]);
      if (sum > target) {
        break;
      }
    }
  }
  return drawn;
}

int32_t draw_candidate(const SampleScratch& scratch,
                       const Candidates& candidates,
                       const SamplingRow& row,
                       int64_t vocab,
                       float* probs) {
  double total = 0.0;
  for (int64_t index = 0; index < candidates.size; ++index) {
    total += static_cast<double>(scratch.weights[index]);
  }
  const double uniform = static_cast<double>(philox_uniform(row.seed, row.stream, row.step));
  if (probs != nullptr) {
    std::fill_n(probs, vocab, 0.0F);
    for (int64_t index = 0; index < candidates.size; ++index) {
      probs[scratch.indices[index]] =
          static_cast<float>(static_cast<double>(scratch.weights[index]) / total);
    }
  }
  return scratch.indices[draw(scratch.weights, candidates.size, uniform * total)];
}

// Without truncation: the piece first, then the token inside it.
int32_t draw_from_all(const SamplingKernels& kernels,
                      const SamplingInput& x,
                      float largest,
                      const SamplingRow& row,
                      const SampleScratch& scratch,
                      float* probs) {
  const float scale = 1.0F / row.temperature;
  const double total = kernels.exponential_sums(x, largest, scale, scratch.sorted);
  double target = static_cast<double>(philox_uniform(row.seed, row.stream, row.step)) * total;
  int64_t piece = 0;
  int64_t last = 0;
  for (; piece < num_pieces(x.n); ++piece) {
    const auto mass = static_cast<double>(scratch.sorted[piece]);
    if (mass > 0.0) {
      last = piece;
      if (mass > target) {
        break;
      }
      target -= mass;
    }
  }
  const int64_t begin = last * kSamplingPiece;
  SamplingInput part = x;
  part.data = static_cast<const std::byte*>(x.data) + begin * (x.is_bf16 ? 2 : 4);
  part.n = std::min(kSamplingPiece, x.n - begin);
  kernels.exponentials(part, largest, scale, scratch.weights);
  if (probs != nullptr) {
    kernels.exponentials(x, largest, scale, probs);
    for (int64_t index = 0; index < x.n; ++index) {
      probs[index] = static_cast<float>(static_cast<double>(probs[index]) / total);
    }
  }
  return static_cast<int32_t>(begin + std::max<int64_t>(0, draw(scratch.weights, part.n, target)));
}

// Logits after penalties and bias: the input itself when there are none.
SamplingInput adjusted(const SampleInput& input,
                       const SamplingRow& row,
                       const SampleScratch& scratch) {
  const bool repetition = input.seen != nullptr && row.repetition_penalty != 1.0F;
  const bool occurrences =
      input.counts != nullptr && (row.presence_penalty != 0.0F || row.frequency_penalty != 0.0F);
  if (!repetition && !occurrences && input.bias == nullptr) {
    return input.logits;
  }
  const int64_t vocab = input.logits.n;
  float* logits = scratch.logits;
  for (int64_t token = 0; token < vocab; ++token) {
    logits[token] = element(input.logits, token);
  }
  if (repetition) {
    for (int64_t word = 0; word < (vocab + 31) / 32; ++word) {
      for (auto bits = static_cast<uint32_t>(input.seen[word]); bits != 0; bits &= bits - 1) {
        const int64_t token = word * 32 + std::countr_zero(bits);
        if (token < vocab) {
          const float logit = logits[token];
          logits[token] =
              logit > 0.0F ? logit / row.repetition_penalty : logit * row.repetition_penalty;
        }
      }
    }
  }
  if (occurrences) {
    for (int64_t token = 0; token < vocab; ++token) {
      const int32_t count = input.counts[token];
      const float penalty =
          row.presence_penalty + row.frequency_penalty * static_cast<float>(count);
      logits[token] -= count > 0 ? penalty : 0.0F;
    }
  }
  if (input.bias != nullptr) {
    for (int64_t token = 0; token < vocab; ++token) {
      logits[token] += input.bias[token];
    }
  }
  return {logits, false, vocab};
}

int32_t first_largest(const SamplingInput& x, float largest, const float* pieces) {
  if (largest == kLowest) {
    return 0;
  }
  const int64_t begin =
      (std::find(pieces, pieces + num_pieces(x.n), largest) - pieces) * kSamplingPiece;
  int64_t index = begin;
  while (element(x, index) != largest) {
    ++index;
  }
  return static_cast<int32_t>(index);
}

// What survives top-k, top-p and min-p, with weights relative to the largest.
Candidates truncated(const SamplingKernels& kernels,
                     const SamplingInput& x,
                     float largest,
                     const SamplingRow& row,
                     const SampleScratch& scratch) {
  const Softness softness{largest, 1.0F / row.temperature};
  Candidates candidates;
  double total = 0.0;
  const bool nucleus = row.top_p < 1.0F;
  const double top_p = std::max(0.0, static_cast<double>(row.top_p));
  if (row.top_k > 0 && row.top_k < x.n) {
    candidates = take_top_k(kernels, x, row.top_k, largest, scratch);
  } else {
    float bound = row.min_p > 0.0F && !nucleus ? std::log(row.min_p) : kLowest;
    if (nucleus) {
      // Tokens below (1 - p) / vocab weigh less than 1 - p together: none of them is needed.
      total = kernels.exponential_sums(x, largest, softness.scale, scratch.sorted);
      const double least = (1.0 - top_p) * total / static_cast<double>(x.n);
      bound = static_cast<float>(std::log(least));
    }
    // A little lower, for what rounding does to the bound.
    bound = largest + (bound - 0.01F - std::abs(bound) * 1e-4F) * row.temperature;
    candidates.size = kernels.collect(x, scratch.pieces, bound, scratch.values, scratch.indices);
  }
  kernels.exponentials(
      {scratch.values, false, candidates.size}, largest, softness.scale, scratch.weights);
  if (nucleus) {
    if (total == 0.0) {
      for (int64_t index = 0; index < candidates.size; ++index) {
        total += static_cast<double>(scratch.weights[index]);
      }
    }
    take_top_p(kernels, softness, top_p * total, scratch, candidates);
  }
  if (row.min_p > 0.0F) {
    take_min_p(row.min_p, scratch, candidates);
  }
  return candidates;
}

}  // namespace

int64_t scratch_elements(int64_t vocab) {
  return 6 * ((vocab + 15) / 16 * 16);
}

SampleScratch scratch_at(float* memory, int64_t vocab) {
  const int64_t size = (vocab + 15) / 16 * 16;
  return {memory,
          memory + size,
          memory + 2 * size,
          memory + 3 * size,
          reinterpret_cast<int32_t*>(memory + 4 * size),
          memory + 5 * size};
}

int32_t sample_row(const SamplingKernels& kernels,
                   const SampleInput& input,
                   const SamplingRow& row,
                   const SampleScratch& scratch,
                   float* probs) {
  const SamplingInput x = adjusted(input, row, scratch);
  const float largest = kernels.piece_maxima(x, scratch.pieces);
  // A temperature too small to divide by is greedy too.
  if (!(row.temperature > 0.0F) || std::isinf(1.0F / row.temperature) || std::isinf(largest)) {
    const int32_t token = first_largest(x, largest, scratch.pieces);
    if (probs != nullptr) {
      std::fill_n(probs, x.n, 0.0F);
      probs[token] = 1.0F;
    }
    return token;
  }
  const bool top_k = row.top_k > 0 && row.top_k < x.n;
  if (!top_k && !(row.top_p < 1.0F) && !(row.min_p > 0.0F)) {
    return draw_from_all(kernels, x, largest, row, scratch, probs);
  }
  const Candidates candidates = truncated(kernels, x, largest, row, scratch);
  return draw_candidate(scratch, candidates, row, x.n, probs);
}

void top_k_row(const SamplingKernels& kernels,
               const SamplingInput& x,
               int64_t k,
               const SampleScratch& scratch,
               float* values,
               int32_t* indices) {
  const float largest = kernels.piece_maxima(x, scratch.pieces);
  const Candidates candidates = take_top_k(kernels, x, k, largest, scratch);
  // Positions by falling value; the weights' memory holds them.
  auto* order = reinterpret_cast<int32_t*>(scratch.weights);
  for (int64_t index = 0; index < candidates.size; ++index) {
    order[index] = static_cast<int32_t>(index);
  }
  std::sort(order, order + candidates.size, [&](int32_t a, int32_t b) {
    return scratch.values[a] != scratch.values[b] ? scratch.values[a] > scratch.values[b] : a < b;
  });
  for (int64_t rank = 0; rank < k; ++rank) {
    values[rank] = scratch.values[order[rank]];
    indices[rank] = scratch.indices[order[rank]];
  }
}

int32_t argmax_row(const SamplingKernels& kernels, const SamplingInput& x, float* pieces) {
  return first_largest(x, kernels.piece_maxima(x, pieces), pieces);
}

}  // namespace mstar
