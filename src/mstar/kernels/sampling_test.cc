#include "mstar/kernels/ops/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/cpu/philox.h"
#include "mstar/kernels/isa_test_util.h"
#include "mstar/kernels/ref/sampling.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor normal_rows(int64_t rows, int64_t n, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  Tensor x = Tensor::empty({rows, n}, DType::kF32);
  for (int64_t index = 0; index < x.num_elements(); ++index) {
    x.data<float>()[index] = normal(random);
  }
  return x;
}

Tensor as_tensor(const std::vector<SamplingRow>& rows) {
  Tensor bytes =
      Tensor::empty({static_cast<int64_t>(rows.size()), int64_t{sizeof(SamplingRow)}}, DType::kU8);
  std::memcpy(bytes.bytes(), rows.data(), rows.size() * sizeof(SamplingRow));
  return bytes;
}

// Known answers of the Random123 distribution (kat_vectors, philox4x32-10).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  const auto words = [](uint64_t key, uint64_t low, uint64_t high) {
    const PhiloxWords random = philox(key, low, high);
    const Words twin = ref::philox(key, low, high);
    EXPECT_TRUE(std::equal(twin.begin(), twin.end(), random.words));
    return twin;
  };
  EXPECT_EQ(words(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(~0ULL, ~0ULL, ~0ULL), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(philox_uniform(0, 0, 0), static_cast<float>(0x6627e8) * 0x1p-24F);
}

TEST(FillNormal, EqualsItsTwinAndDoesNotDependOnCutsOrInstructionSet) {
  ThreadPool one(1);
  ThreadPool many(4);
  Tensor want = Tensor::empty({20011}, DType::kF32);
  ref::fill_normal(42, 7, want);
  Tensor first;
  for_each_isa([&] {
    CpuStream alone(one);
    CpuStream shared(many);
    Tensor out = Tensor::empty({20011}, DType::kF32);
    ops::fill_normal(alone, 42, 7, out);
    EXPECT_TRUE(compare(out, want, {.atol = 2e-6, .rtol = 2e-6}).passed);
    first = first.defined() ? first : out;
    EXPECT_TRUE(compare(out, first, {.exact = true}).passed);
    Tensor again = Tensor::empty({20011}, DType::kF32);
    ops::fill_normal(shared, 42, 7, again);
    EXPECT_TRUE(compare(again, first, {.exact = true}).passed);
    Tensor half = Tensor::empty({1003}, DType::kBF16);
    ops::fill_normal(shared, 42, 7, half);
    EXPECT_TRUE(compare(half, first.slice(0, 0, 1003).to(DType::kBF16), {.exact = true}).passed);
  });
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : first.to_floats()) {
    sum += value;
    squares += double{value} * value;
  }
  EXPECT_NEAR(sum / 20011, 0.0, 0.02);
  EXPECT_NEAR(squares / 20011, 1.0, 0.03);
}

TEST(Softmax, EqualsItsTwin) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const int64_t n : {1, 7, 16, 129, 5000}) {
    Tensor x = normal_rows(5, n, 4.0F, 1);
    x.data<float>()[0] = 1e30F;
    x.data<float>()[n] = -kInfinity;
    x.data<float>()[n + n / 2] = 3.0F;
    for_each_isa([&] {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Tensor in = x.to(dtype);
        Tensor want = Tensor::empty({5, n}, DType::kF32);
        ref::softmax(in, want);
        Tensor out = in.copy();
        ops::softmax(stream, out, out);  // in place
        const Comparison result =
            compare(out, want, {.atol = 1e-7, .rtol = dtype == DType::kF32 ? 2e-6 : 4e-3});
        EXPECT_TRUE(result.passed) << n << " " << result.to_string();
      }
    });
  }
}

void check_top_k(CpuStream& stream, const Tensor& x, int64_t k) {
  SCOPED_TRACE(k);
  const int64_t rows = x.dim(0);
  Tensor values = Tensor::empty({rows, k}, DType::kF32);
  Tensor indices = Tensor::empty({rows, k}, DType::kI32);
  Tensor want_values = Tensor::empty({rows, k}, DType::kF32);
  Tensor want_indices = Tensor::empty({rows, k}, DType::kI32);
  ops::top_k(stream, x, values, indices);
  ref::top_k(x, want_values, want_indices);
  EXPECT_TRUE(compare(values, want_values, {.exact = true}).passed);
  EXPECT_TRUE(compare(indices, want_indices, {.exact = true}).passed);
  Tensor largest = Tensor::empty({rows}, DType::kI32);
  ops::argmax(stream, x, largest);
  EXPECT_TRUE(compare(largest, want_indices.select(1, 0), {.exact = true}).passed);
}

TEST(TopK, EqualsItsTwinWithTiesAndStrangeValues) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  Tensor ties = normal_rows(3, 3000, 2.0F, 2);
  for (int64_t index = 0; index < ties.num_elements(); ++index) {
    ties.data<float>()[index] = std::round(ties.data<float>()[index]);
  }
  Tensor strange = normal_rows(2, 1000, 1.0F, 3);
  for (const int64_t index : {0, 500, 999}) {
    strange.data<float>()[index] = kNan;
    strange.data<float>()[index / 2 + 100] = kInfinity;
  }
  Tensor few = Tensor::empty({1, 300}, DType::kF32);
  std::fill_n(few.data<float>(), 300, -kInfinity);
  few.data<float>()[77] = -3.0F;
  few.data<float>()[5] = kNan;
  const Tensor smooth = normal_rows(2, 4001, 1.0F, 4);
  for_each_isa([&] {
    for (const int64_t k : {1, 8, 33, 100, 300}) {
      check_top_k(stream, smooth, k);
      check_top_k(stream, ties, k);
      check_top_k(stream, strange, k);
      check_top_k(stream, few, k);
    }
    check_top_k(stream, smooth, 4001);
  });
}

struct SampleCase {
  const char* name;
  SamplingRow row;
  bool seen = false;
  bool counts = false;
  bool bias = false;
};

std::vector<SampleCase> sample_cases() {
  return {
      {"greedy", {.temperature = 0.0F}},
      {"greedy after penalty", {.temperature = 0.0F, .repetition_penalty = 3.0F}, true},
      {"plain", {}},
      {"cold", {.temperature = 0.05F}},
      {"coldest", {.temperature = 1e-40F}},
      {"top_k", {.top_k = 20}},
      {"top_k 1", {.top_k = 1}},
      {"top_k large", {.temperature = 2.0F, .top_k = 700}},
      {"top_k all", {.top_k = 1 << 30}},
      {"top_p", {.top_p = 0.9F}},
      {"top_p flat", {.temperature = 50.0F, .top_p = 0.95F}},
      {"top_p tiny", {.top_p = 1e-6F}},
      {"top_p zero", {.top_p = 0.0F}},
      {"min_p", {.temperature = 1.5F, .min_p = 0.05F}},
      {"min_p one", {.min_p = 1.0F}},
      {"all", {.temperature = 0.8F, .top_p = 0.8F, .min_p = 0.02F, .top_k = 50}},
      {"penalties",
       {.temperature = 0.7F,
        .top_p = 0.95F,
        .repetition_penalty = 1.3F,
        .presence_penalty = 0.5F,
        .frequency_penalty = -0.25F},
       true,
       true,
       true},
      {"bias", {.top_k = 5}, false, false, true},
  };
}

struct SampleInputs {
  Tensor logits, seen, counts, bias;
};

SampleInputs make_inputs(const SampleCase& c, int64_t rows, int64_t vocab, float spread) {
  std::mt19937 random(31);
  SampleInputs in;
  in.logits = normal_rows(rows, vocab, spread, 5);
  if (c.seen) {
    in.seen = Tensor::zeros({rows, (vocab + 31) / 32}, DType::kI32);
    for (int64_t index = 0; index < in.seen.num_elements(); ++index) {
      in.seen.data<int32_t>()[index] = static_cast<int32_t>(random() & random());
    }
  }
  if (c.counts) {
    in.counts = Tensor::zeros({rows, vocab}, DType::kI32);
    for (int64_t index = 0; index < in.counts.num_elements(); index += 3) {
      in.counts.data<int32_t>()[index] = static_cast<int32_t>(random() % 3);
    }
  }
  if (c.bias) {
    in.bias = normal_rows(rows, vocab, 1.0F, 6);
    in.bias.data<float>()[vocab / 2] = -kInfinity;
  }
  return in;
}

void check_sample(CpuStream& stream, const SampleCase& c, int64_t vocab, float spread) {
  SCOPED_TRACE(c.name);
  SCOPED_TRACE(vocab);
  constexpr int64_t kRows = 4;
  const SampleInputs in = make_inputs(c, kRows, vocab, spread);
  std::vector<SamplingRow> rows(kRows, c.row);
  for (size_t row = 0; row < rows.size(); ++row) {
    rows[row].seed = 1000 + row;
    rows[row].stream = 17;
    rows[row].step = row * row;
  }
  Tensor tokens = Tensor::empty({kRows}, DType::kI32);
  Tensor probs = Tensor::empty({kRows, vocab}, DType::kF32);
  Tensor want_tokens = Tensor::empty({kRows}, DType::kI32);
  Tensor want_probs = Tensor::empty({kRows, vocab}, DType::kF32);
  const Tensor parameters = as_tensor(rows);
  ref::sample(in.logits, parameters, in.seen, in.counts, in.bias, want_tokens, want_probs);
  ops::sample(stream, in.logits, parameters, in.seen, in.counts, in.bias, tokens, probs);
  const Comparison result = compare(probs, want_probs, {.atol = 1e-7, .rtol = 2e-5});
  EXPECT_TRUE(result.passed) << result.to_string();
  EXPECT_TRUE(compare(tokens, want_tokens, {.exact = true}).passed)
      << tokens.to_string() << want_tokens.to_string();
  Tensor alone = Tensor::empty({kRows}, DType::kI32);
  Tensor none;
  ops::sample(stream, in.logits, parameters, in.seen, in.counts, in.bias, alone, none);
  EXPECT_TRUE(compare(alone, tokens, {.exact = true}).passed);
}

TEST(Sample, EqualsItsTwinForAllParameters) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for_each_isa([&] {
    for (const SampleCase& c : sample_cases()) {
      check_sample(stream, c, 101, 3.0F);
      check_sample(stream, c, 6000, 3.0F);
    }
  });
}

// Equal logits everywhere: cuts go by token id.
TEST(Sample, Ties) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  for_each_isa([&] {
    for (const SampleCase& c : sample_cases()) {
      check_sample(stream, c, 1000, 0.0F);
    }
  });
}

TEST(Sample, StrangeLogits) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  Tensor logits = Tensor::zeros({4, 200}, DType::kF32);
  float* values = logits.data<float>();
  std::fill_n(values, 200, -kInfinity);  // nothing allowed: token 0
  std::fill_n(values + 200, 200, kNan);  // but one
  values[200 + 150] = -5.0F;
  values[400 + 9] = kInfinity;                 // certain
  std::fill_n(values + 600, 200, -kInfinity);  // two allowed
  values[600 + 30] = values[600 + 199] = 88.0F;
  for_each_isa([&] {
    for (const SampleCase& c : sample_cases()) {
      if (c.seen || c.counts || c.bias) {
        continue;
      }
      SCOPED_TRACE(c.name);
      Tensor tokens = Tensor::empty({4}, DType::kI32);
      Tensor probs;
      ops::sample(
          stream, logits, as_tensor(std::vector<SamplingRow>(4, c.row)), {}, {}, {}, tokens, probs);
      EXPECT_EQ(tokens.data<int32_t>()[0], 0);
      EXPECT_EQ(tokens.data<int32_t>()[1], 150);
      EXPECT_EQ(tokens.data<int32_t>()[2], 9);
      const int32_t last = tokens.data<int32_t>()[3];
      EXPECT_TRUE(last == 30 || last == 199) << last;
    }
  });
}

// Frequencies of many draws follow the distribution; one row's draw ignores its neighbours.
TEST(Sample, FrequenciesAndBatchIndependence) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  constexpr int64_t kDraws = 4000;
  const Tensor one = normal_rows(1, 12, 1.0F, 8);
  Tensor logits = Tensor::empty({kDraws, 12}, DType::kF32);
  std::vector<SamplingRow> rows(kDraws);
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    std::memcpy(logits.data<float>() + draw * 12, one.bytes(), 48);
    rows[static_cast<size_t>(draw)] = {.temperature = 1.2F, .top_k = draw % 2 == 0 ? 0 : 12};
    rows[static_cast<size_t>(draw)].step = static_cast<uint64_t>(draw);
  }
  const Tensor parameters = as_tensor(rows);
  Tensor tokens = Tensor::empty({kDraws}, DType::kI32);
  Tensor probs = Tensor::empty({kDraws, 12}, DType::kF32);
  ops::sample(stream, logits, parameters, {}, {}, {}, tokens, probs);
  std::vector<double> counts(12, 0.0);
  for (const int64_t token : tokens.to_ints()) {
    counts[static_cast<size_t>(token)] += 1.0;
  }
  for (size_t token = 0; token < 12; ++token) {
    const double p = probs.data<float>()[token];
    EXPECT_NEAR(counts[token] / kDraws, p, 4.0 * std::sqrt(p / kDraws));
  }
  for (const int64_t draw : {0, 1, 2345}) {
    Tensor token = Tensor::empty({1}, DType::kI32);
    Tensor none;
    ops::sample(stream, one, parameters.slice(0, draw, draw + 1), {}, {}, {}, token, none);
    EXPECT_EQ(token.data<int32_t>()[0], tokens.data<int32_t>()[draw]);
  }
}

// A replayed step reads the parameters that then stand in the tensor.
TEST(Sample, ReplayReadsNewParameters) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const Tensor logits = normal_rows(1, 5000, 1.0F, 9).to(DType::kBF16);
  SamplingRow row{.temperature = 1.0F, .top_p = 0.9F};
  Tensor parameters = as_tensor({row});
  Tensor tokens = Tensor::empty({1}, DType::kI32);
  Tensor none;
  stream.begin_capture();
  ops::sample(stream, logits, parameters, {}, {}, {}, tokens, none);
  const auto graph = stream.end_capture();
  int changes = 0;
  int32_t last = tokens.data<int32_t>()[0];
  for (row.step = 1; row.step < 6; ++row.step) {
    std::memcpy(parameters.bytes(), &row, sizeof(row));
    graph->replay();
    Tensor eager = Tensor::empty({1}, DType::kI32);
    ops::sample(stream, logits, parameters, {}, {}, {}, eager, none);
    EXPECT_EQ(tokens.data<int32_t>()[0], eager.data<int32_t>()[0]);
    changes += tokens.data<int32_t>()[0] != last ? 1 : 0;
    last = tokens.data<int32_t>()[0];
  }
  EXPECT_GT(changes, 0);
}

}  // namespace
}  // namespace mstar
