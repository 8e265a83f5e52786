#include "mstar/kernels/ref/moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mstar/kernels/ref/elements.h"

namespace mstar::ref {

void route_top_k(const Tensor& logits, bool norm_topk_prob, Tensor& weights, Tensor& ids) {
  const std::vector<float> all = logits.to_floats();
  const auto num_experts = static_cast<size_t>(logits.dim(1));
  const auto k = static_cast<size_t>(ids.dim(1));
  std::vector<double> out_weights;
  std::vector<double> out_ids;
  for (size_t token = 0; token < static_cast<size_t>(logits.dim(0)); ++token) {
    const float* row = all.data() + token * num_experts;
    const double largest = *std::max_element(row, row + num_experts);
    double total = 0.0;
    for (size_t expert = 0; expert < num_experts; ++expert) {
      total += std::exp(row[expert] - largest);
    }
    std::vector<size_t> order(num_experts);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(
        order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
    double chosen = 0.0;
    for (size_t choice = 0; choice < k; ++choice) {
      chosen += std::exp(row[order[choice]] - largest) / total;
    }
    for (size_t choice = 0; choice < k; ++choice) {
      const double probability = std::exp(row[order[choice]] - largest) / total;
      out_weights.push_back(norm_topk_prob ? probability / chosen : probability);
      out_ids.push_back(static_cast<double>(order[choice]));
    }
  }
  assign(weights, out_weights);
  assign(ids, out_ids);
}

void sort_by_expert(const Tensor& ids, Tensor& indptr, Tensor& rows, Tensor& slots) {
  const std::vector<int64_t> experts = ids.to_ints();
  const int64_t k = ids.dim(1);
  std::vector<size_t> order(experts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(
      order.begin(), order.end(), [&](size_t a, size_t b) { return experts[a] < experts[b]; });
  for (size_t row = 0; row < order.size(); ++row) {
    rows.data<int32_t>()[row] = static_cast<int32_t>(static_cast<int64_t>(order[row]) / k);
    slots.data<int32_t>()[order[row]] = static_cast<int32_t>(row);
  }
  for (int64_t expert = 0; expert < indptr.dim(0); ++expert) {
    indptr.data<int32_t>()[expert] = static_cast<int32_t>(std::count_if(
        experts.begin(), experts.end(), [&](int64_t chosen) { return chosen < expert; }));
  }
}

void combine_experts(const Tensor& x, const Tensor& slots, const Tensor& weights, Tensor& out) {
  const std::vector<float> values = x.to_floats();
  const std::vector<int64_t> from = slots.to_ints();
  const std::vector<float> factors = weights.to_floats();
  const auto dim = static_cast<size_t>(out.dim(1));
  const auto k = static_cast<size_t>(weights.dim(1));
  std::vector<double> sums(static_cast<size_t>(out.num_elements()), 0.0);
  for (size_t index = 0; index < sums.size(); ++index) {
    const size_t token = index / dim;
    for (size_t choice = 0; choice < k; ++choice) {
      const auto row = static_cast<size_t>(from[token * k + choice]);
      sums[index] += static_cast<double>(factors[token * k + choice]) *
                     static_cast<double>(values[row * dim + index % dim]);
    }
  }
  assign(out, sums);
}

}  // namespace mstar::ref
