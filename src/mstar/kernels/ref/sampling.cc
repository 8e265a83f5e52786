#include "mstar/kernels/ref/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "mstar/kernels/ref/elements.h"

namespace mstar::ref {

namespace {

using Row = std::vector<double>;

std::vector<Row> rows_of(const Tensor& x) {
  std::vector<float> values = x.to_floats();
  for (float& value : values) {  // NaN counts as minus infinity
    value = std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
  }
  const auto width = static_cast<size_t>(x.dim(-1));
  std::vector<Row> rows;
  for (size_t begin = 0; begin < values.size(); begin += width) {
    rows.emplace_back(values.begin() + static_cast<ptrdiff_t>(begin),
                      values.begin() + static_cast<ptrdiff_t>(begin + width));
  }
  return rows;
}

// Indices by falling value, ties by the smaller index.
std::vector<size_t> falling(const Row& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(
      order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  return order;
}

Row softmax_of(const Row& values) {
  const double largest = *std::max_element(values.begin(), values.end());
  Row out;
  for (const double value : values) {
    out.push_back(std::exp(value - largest));
  }
  const double total = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& value : out) {
    value /= total;
  }
  return out;
}

void penalize(Row& logits, const SamplingRow& row, const int32_t* seen, const int32_t* counts) {
  for (size_t token = 0; token < logits.size(); ++token) {
    double& logit = logits[token];
    if (seen != nullptr && ((static_cast<uint32_t>(seen[token / 32]) >> (token % 32)) & 1U) != 0) {
      logit = logit > 0.0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    }
    if (counts != nullptr && counts[token] > 0) {
      logit -= row.presence_penalty + row.frequency_penalty * counts[token];
    }
  }
}

// The distribution drawn from, given logits after penalties and bias.
Row distribution(Row logits, const SamplingRow& row) {
  for (double& logit : logits) {
    logit = std::isnan(logit) ? -std::numeric_limits<double>::infinity() : logit;
  }
  const std::vector<size_t> order = falling(logits);
  Row out(logits.size(), 0.0);
  if (!(row.temperature > 0.0F) || std::isinf(1.0F / row.temperature) ||
      std::isinf(logits[order[0]])) {
    out[order[0]] = 1.0;
    return out;
  }
  for (double& logit : logits) {
    logit /= row.temperature;
  }
  size_t kept = logits.size();
  if (row.top_k > 0) {
    kept = std::min(kept, static_cast<size_t>(row.top_k));
  }
  const double largest = logits[order[0]];
  double total = 0.0;
  for (size_t rank = 0; rank < kept; ++rank) {
    total += std::exp(logits[order[rank]] - largest);
  }
  double before = 0.0;
  for (size_t rank = 0; rank < kept; ++rank) {
    if (rank > 0 && row.top_p < 1.0F && before >= row.top_p * total) {
      break;
    }
    const double weight = std::exp(logits[order[rank]] - largest);
    before += weight;
    if (rank == 0 || weight >= row.min_p) {
      out[order[rank]] = weight;
    }
  }
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& value : out) {
    value /= sum;
  }
  return out;
}

}  // namespace

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  std::array<uint32_t, 4> x{static_cast<uint32_t>(counter_low),
                            static_cast<uint32_t>(counter_low >> 32),
                            static_cast<uint32_t>(counter_high),
                            static_cast<uint32_t>(counter_high >> 32)};
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0,
         static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1,
         static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return x;
}

void softmax(const Tensor& x, Tensor& out) {
  std::vector<double> values;
  for (const Row& row : rows_of(x)) {
    const Row probabilities = softmax_of(row);
    values.insert(values.end(), probabilities.begin(), probabilities.end());
  }
  assign(out, values);
}

void top_k(const Tensor& x, Tensor& values, Tensor& indices) {
  std::vector<double> out_values;
  std::vector<double> out_indices;
  for (const Row& row : rows_of(x)) {
    const std::vector<size_t> order = falling(row);
    for (size_t rank = 0; rank < static_cast<size_t>(values.dim(1)); ++rank) {
      out_values.push_back(row[order[rank]]);
      out_indices.push_back(static_cast<double>(order[rank]));
    }
  }
  assign(values, out_values);
  assign(indices, out_indices);
}

void argmax(const Tensor& x, Tensor& indices) {
  std::vector<double> out;
  for (const Row& row : rows_of(x)) {
    out.push_back(static_cast<double>(falling(row)[0]));
  }
  assign(indices, out);
}

void sample(const Tensor& logits,
            const Tensor& rows,
            const Tensor& seen,
            const Tensor& counts,
            const Tensor& logit_bias,
            Tensor& tokens,
            Tensor& probs) {
  const std::vector<Row> all = rows_of(logits);
  const std::vector<Row> biases = logit_bias.defined() ? rows_of(logit_bias) : std::vector<Row>{};
  std::vector<double> out_tokens;
  std::vector<double> out_probs;
  for (size_t index = 0; index < all.size(); ++index) {
    SamplingRow row;
    std::memcpy(&row, rows.bytes() + index * sizeof(SamplingRow), sizeof(SamplingRow));
    Row values = all[index];
    const auto at = static_cast<int64_t>(index);
    penalize(values,
             row,
             seen.defined() ? seen.select(0, at).data<int32_t>() : nullptr,
             counts.defined() ? counts.select(0, at).data<int32_t>() : nullptr);
    for (size_t token = 0; token < values.size() && !biases.empty(); ++token) {
      values[token] += biases[index][token];
    }
    const Row distributed = distribution(values, row);
    // The first token, by rising id, at which the cumulative probability exceeds the uniform.
    const double uniform = philox_uniform(row.seed, row.stream, row.step);
    double cumulative = 0.0;
    size_t drawn = 0;
    for (size_t token = 0; token < distributed.size(); ++token) {
      if (distributed[token] > 0.0) {
        drawn = token;
        cumulative += distributed[token];
        if (cumulative > uniform) {
          break;
        }
      }
    }
    out_tokens.push_back(static_cast<double>(drawn));
    out_probs.insert(out_probs.end(), distributed.begin(), distributed.end());
  }
  assign(tokens, out_tokens);
  if (probs.defined()) {
    assign(probs, out_probs);
  }
}

void fill_normal(uint64_t seed, uint64_t stream_id, Tensor& out) {
  std::vector<double> values(static_cast<size_t>(out.num_elements()));
  for (size_t index = 0; index < values.size(); ++index) {
    const std::array<uint32_t, 4> bits = philox(seed, index / 4, stream_id);
    const size_t pair = index % 4 / 2;
    const double radius_uniform = (static_cast<double>(bits[2 * pair] >> 8) + 1.0) * 0x1p-24;
    const double angle_uniform = static_cast<double>(bits[2 * pair + 1] >> 8) * 0x1p-24;
    const double radius = std::sqrt(-2.0 * std::log(radius_uniform));
    const double angle = 2.0 * M_PI * angle_uniform;
    values[index] = radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
  assign(out, values);
}

}  // namespace mstar::ref
