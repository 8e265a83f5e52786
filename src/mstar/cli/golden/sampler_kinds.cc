// The distribution a sampler draws from.
#include <limits>

#include "mstar/cli/golden/registry.h"
#include "mstar/kernels/ops/sampling.h"

namespace mstar::golden {

namespace {

SamplingRow row_of(const Json& json) {
  const auto number = [&](const char* key, double fallback) {
    const Json* value = json.find(key);
    return static_cast<float>(value == nullptr ? fallback : value->get_double());
  };
  SamplingRow row;
  row.temperature = number("temperature", 1.0);
  row.top_p = number("top_p", 1.0);
  row.min_p = number("min_p", 0.0);
  row.top_k = static_cast<int32_t>(number("top_k", 0.0));
  row.repetition_penalty = number("repetition_penalty", 1.0);
  return row;
}

// Runs the op on `rows` and gives its probabilities; `seen` are the seen tokens of each row.
Tensor probabilities(RunContext& context,
                     const Tensor& logits,
                     std::vector<SamplingRow> rows,
                     const std::vector<std::vector<int64_t>>& seen,
                     CaseResult& result) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  const int64_t vocab = logits.dim(1);
  const int64_t words = (vocab + 31) / 32;
  Tensor bits = Tensor::zeros({num_rows, words}, DType::kI32);
  for (size_t row = 0; row < seen.size(); ++row) {
    for (const int64_t token : seen[row]) {
      const auto word = static_cast<int64_t>(row) * words + token / 32;
      bits.data<int32_t>()[word] |= static_cast<int32_t>(1U << (token % 32));
    }
  }
  const Tensor packed = Tensor::borrow(
      rows.data(), {num_rows, static_cast<int64_t>(sizeof(SamplingRow))}, DType::kU8);
  Tensor probs = context.stream.empty({num_rows, vocab}, DType::kF32);
  // Every draw must come from the distribution that is reported with it.
  for (uint64_t seed = 0; seed < 32; ++seed) {
    for (SamplingRow& row : rows) {
      row.seed = seed;
    }
    Tensor tokens = context.stream.empty({num_rows}, DType::kI32);
    ops::sample(context.stream, logits, packed, bits, Tensor(), Tensor(), tokens, probs);
    context.stream.synchronize();
    for (int64_t row = 0; row < num_rows; ++row) {
      const int32_t token = tokens.data<int32_t>()[row];
      if (token < 0 || token >= vocab || !(probs.data<float>()[row * vocab + token] > 0.0F)) {
        result.fail("drew a token of probability 0");
      }
    }
  }
  return probs;
}

void run_single(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Tensor logits = golden.tensor("logits").unsqueeze(0);
  const Tensor probs = probabilities(context,
                                     logits,
                                     {row_of(golden.config)},
                                     {golden.tensor("seen_tokens").to_ints()},
                                     result)
                           .select(0, 0);
  result.expect("probs", probs);
  // A probability that f32 cannot hold is 0 and says nothing about the filters.
  const std::vector<float> recorded = golden.tensor("probs").to_floats();
  const std::vector<int64_t> kept = golden.tensor("keep").to_ints();
  Tensor keep = Tensor::empty(probs.shape(), DType::kU8);
  for (int64_t token = 0; token < probs.dim(0); ++token) {
    const auto index = static_cast<size_t>(token);
    const bool lost = kept[index] != 0 && recorded[index] < std::numeric_limits<float>::min();
    keep.data<uint8_t>()[token] = lost || probs.data<float>()[token] > 0.0F ? 1 : 0;
  }
  result.expect("keep", keep);
}

void run_batch(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  std::vector<SamplingRow> rows;
  std::vector<std::vector<int64_t>> seen;
  for (const Json& row : golden.config.at("rows").get_array()) {
    seen.push_back(golden.tensor("seen_tokens" + std::to_string(rows.size())).to_ints());
    rows.push_back(row_of(row));
  }
  result.expect("probs", probabilities(context, golden.tensor("logits"), rows, seen, result));
}

}  // namespace

void add_sampler_kinds(Registry& registry) {
  registry.add_prefix("sampler_", run_single);
  registry.add_prefix("sampler_batch", run_batch);
}

}  // namespace mstar::golden
