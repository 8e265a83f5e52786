// The distribution that sampling draws from against the one of transformers' logits processors
// (tests/golden/lm, cases sampler_*).
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "mstar/base/json.h"
#include "mstar/kernels/isa_test_util.h"
#include "mstar/kernels/ops/sampling.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(MSTAR_SOURCE_DIR) + "/tests/golden/lm/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A tensor of a safetensors file of ours.
Tensor read_tensor(const std::string& bytes, const std::string& name) {
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  const Json header = Json::parse(std::string_view(bytes).substr(8, header_size), name);
  const Json& entry = header.at(name);
  std::vector<int64_t> dims;
  for (const Json& dim : entry.at("shape").get_array()) {
    dims.push_back(dim.get_int());
  }
  const std::string& type = entry.at("dtype").get_string();
  Tensor tensor =
      Tensor::empty(Shape(std::span<const int64_t>(dims)),
                    type == "I64" ? DType::kI64 : (type == "U8" ? DType::kU8 : DType::kF32));
  const auto begin = static_cast<size_t>(entry.at("data_offsets").get_array()[0].get_int());
  std::memcpy(tensor.bytes(),
              bytes.data() + 8 + header_size + begin,
              static_cast<size_t>(tensor.size_bytes()));
  return tensor;
}

float number(const Json& config, const char* key, float fallback) {
  return config.contains(key) ? static_cast<float>(config.at(key).get_double()) : fallback;
}

SamplingRow row_of(const Json& config) {
  SamplingRow row;
  row.temperature = number(config, "temperature", 1.0F);
  row.top_p = number(config, "top_p", 1.0F);
  row.min_p = number(config, "min_p", 0.0F);
  row.top_k = static_cast<int32_t>(number(config, "top_k", 0.0F));
  row.repetition_penalty = number(config, "repetition_penalty", 1.0F);
  return row;
}

void mark(const Tensor& seen_tokens, int32_t* bits) {
  for (const int64_t token : seen_tokens.to_ints()) {
    bits[token / 32] |= static_cast<int32_t>(1U << (token % 32));
  }
}

void check_case(CpuStream& stream, const Json& record) {
  const std::string bytes = read_file(record.at("file").get_string());
  ASSERT_GT(bytes.size(), 8U);
  const Json& config = record.at("config");
  const bool batch = config.contains("rows");
  Tensor logits = read_tensor(bytes, "logits");
  Tensor want = read_tensor(bytes, "probs");
  logits = batch ? logits : logits.unsqueeze(0);
  want = batch ? want : want.unsqueeze(0);
  const int64_t rows = logits.dim(0);
  const int64_t vocab = logits.dim(1);
  const int64_t words = (vocab + 31) / 32;
  const Tensor seen = Tensor::zeros({rows, words}, DType::kI32);
  const Tensor parameters = Tensor::empty({rows, int64_t{sizeof(SamplingRow)}}, DType::kU8);
  for (int64_t row = 0; row < rows; ++row) {
    const std::string name =
        batch ? "seen_tokens" + std::to_string(row) : std::string("seen_tokens");
    mark(read_tensor(bytes, name), seen.data<int32_t>() + row * words);
    const SamplingRow parameter =
        row_of(batch ? config.at("rows").get_array()[static_cast<size_t>(row)] : config);
    std::memcpy(
        parameters.bytes() + row * int64_t{sizeof(SamplingRow)}, &parameter, sizeof(SamplingRow));
  }
  Tensor tokens = Tensor::empty({rows}, DType::kI32);
  Tensor probs = Tensor::empty({rows, vocab}, DType::kF32);
  ops::sample(stream, logits, parameters, seen, {}, {}, tokens, probs);
  const Comparison result = compare(probs, want, {.atol = 1e-6, .rtol = 1e-4});
  EXPECT_TRUE(result.passed) << result.to_string();
  for (int64_t index = 0; index < probs.num_elements(); ++index) {  // exactly the same tokens
    ASSERT_EQ(probs.data<float>()[index] > 0.0F, want.data<float>()[index] > 0.0F) << index;
  }
}

TEST(SampleRecorded, Distributions) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  const Json index = Json::parse(read_file("cases.json"), "cases.json");
  int num_cases = 0;
  for (const Json& record : index.at("cases").get_array()) {
    const std::string& name = record.at("name").get_string();
    if (name.rfind("sampler_", 0) != 0) {
      continue;
    }
    SCOPED_TRACE(name);
    ++num_cases;
    for_each_isa([&] { check_case(stream, record); });
  }
  EXPECT_GE(num_cases, 14);
}

}  // namespace
}  // namespace mstar
