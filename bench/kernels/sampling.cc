#include "mstar/kernels/ops/sampling.h"

#include <cstring>
#include <memory>

#include "mstar/base/str_cat.h"

#include "bench/kernels/families.h"

namespace mstar::bench {

namespace {

constexpr int64_t kVocab = 151936;

struct Sampling {
  Tensor logits;
  Tensor rows;
  Tensor tokens;
  Tensor none;
};

// One row; `spread` is the width of the logits, which decides how many tokens matter.
Case sample_case(const char* name, const SamplingRow& row, float spread) {
  Case result;
  result.name = str_cat("sample/", name, "/vocab", kVocab, "/spread", spread);
  result.bytes = 4.0 * static_cast<double>(kVocab);
  result.prepare = [=](CpuStream& stream) {
    auto state = std::make_shared<Sampling>();
    state->logits = random_tensor({1, kVocab}, DType::kF32, 5, spread);
    state->rows = Tensor::empty({1, int64_t{sizeof(SamplingRow)}}, DType::kU8);
    std::memcpy(state->rows.bytes(), &row, sizeof(row));
    state->tokens = Tensor::empty({1}, DType::kI32);
    Case::Runs runs;
    runs.ours = [state, &stream] {
      ops::sample(stream, state->logits, state->rows, {}, {}, {}, state->tokens, state->none);
    };
    return runs;
  };
  return result;
}

}  // namespace

void add_sampling_cases(Cases& cases) {
  const SamplingRow greedy{.temperature = 0.0F};
  const SamplingRow plain{.temperature = 0.8F};
  const SamplingRow top_k{.temperature = 0.8F, .top_k = 50};
  const SamplingRow top_p{.temperature = 0.8F, .top_p = 0.95F};
  const SamplingRow both{.temperature = 0.8F, .top_p = 0.95F, .top_k = 50};
  cases.push_back(sample_case("greedy", greedy, 10.0F));
  cases.push_back(sample_case("temperature", plain, 10.0F));
  cases.push_back(sample_case("top_k", top_k, 10.0F));
  cases.push_back(sample_case("top_k+top_p", both, 10.0F));
  cases.push_back(sample_case("top_p", top_p, 10.0F));
  cases.push_back(sample_case("top_p", top_p, 1.0F));
}

}  // namespace mstar::bench
