// Recorded cases of paged attention and of whole caches (tests/golden/components).

#include <gtest/gtest.h>

#include "mstar/kernels/ops/attention.h"
#include "mstar/resources/golden_file.h"
#include "mstar/resources/kv_plan.h"
#include "mstar/resources/stream_script.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

const std::string kFolder = MSTAR_SOURCE_DIR "/tests/golden/components/";

Json all_cases() {
  std::ifstream file(kFolder + "cases.json");
  const Json cases = Json::parse(std::string((std::istreambuf_iterator<char>(file)), {}));
  return cases.is_object() ? cases.at("cases") : cases;
}

std::vector<Json> cases_of(const std::string& prefix) {
  std::vector<Json> found;
  const Json all = all_cases();
  for (const Json& one : all.get_array()) {
    if (one.at("name").get_string().starts_with(prefix)) {
      found.push_back(one);
    }
  }
  return found;
}

Tolerance tolerance_of(const Json& one, const std::string& output) {
  const Json& given = one.at("tolerance").at(output);
  if (given.contains("exact")) {
    return {.exact = true};
  }
  return {.atol = given.at("atol").get_double(), .rtol = given.at("rtol").get_double()};
}

void expect_equal(const Json& one,
                  const std::string& output,
                  const Tensor& got,
                  const Tensor& want) {
  const Comparison comparison = compare(got, want, tolerance_of(one, output));
  EXPECT_TRUE(comparison.passed) << one.at("name").get_string() << " " << output << ": "
                                 << comparison.to_string();
}

TEST(Golden, StreamScripts) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const std::vector<Json> cases = cases_of("stream_");
  EXPECT_GE(cases.size(), 6U);
  for (const Json& one : cases) {
    const testing::GoldenFile golden(kFolder + one.at("file").get_string());
    const StreamScriptResult result = run_stream_script(
        stream, one.at("config"), [&](const std::string& name) { return golden(name); });
    EXPECT_EQ(result.problems, std::vector<std::string>()) << one.at("name").get_string();
    EXPECT_FALSE(result.outputs.empty());
    for (const auto& [name, tensor] : result.outputs) {
      expect_equal(one, name, tensor, golden(name));
    }
  }
}

TEST(Golden, WriteAddressesFollowFromThePlan) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  for (const Json& one : cases_of("paged_write")) {
    const testing::GoldenFile golden(kFolder + one.at("file").get_string());
    const int64_t page_size = one.at("config").at("page_size").get_int();
    const int32_t* indptr = golden("paged_kv_indptr").data<int32_t>();
    const Tensor& indices = golden("paged_kv_indices");
    Tensor to_page = Tensor::empty(golden("token_to_page").shape(), DType::kI32);
    Tensor to_slot = Tensor::empty(golden("token_to_slot").shape(), DType::kI32);
    int64_t row = 0;
    for (size_t sequence = 0; sequence < one.at("config").at("new").size(); ++sequence) {
      const int64_t stored = one.at("config").at("stored")[sequence].get_int();
      const int64_t num_new = one.at("config").at("new")[sequence].get_int();
      const std::span<const int32_t> pages(
          indices.data<int32_t>() + indptr[sequence],
          static_cast<size_t>(indptr[sequence + 1] - indptr[sequence]));
      fill_write_addresses(pages,
                           stored,
                           stored + num_new,
                           page_size,
                           to_page.data<int32_t>() + row,
                           to_slot.data<int32_t>() + row);
      row += num_new;
    }
    expect_equal(one, "token_to_page", to_page, golden("token_to_page"));
    expect_equal(one, "token_to_slot", to_slot, golden("token_to_slot"));
    Tensor pages = golden("pool").copy();
    ops::write_paged_kv(stream, golden("k"), golden("v"), to_page, to_slot, pages);
    expect_equal(one, "pool_after", pages, golden("pool_after"));
  }
}

TEST(Golden, PagedAttention) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  int num_cases = 0;
  for (const Json& one : cases_of("paged_")) {
    const Json& config = one.at("config");
    if (!config.contains("causal")) {
      continue;
    }
    const testing::GoldenFile golden(kFolder + one.at("file").get_string());
    Tensor out = Tensor::empty(golden("out").shape(), golden("out").dtype());
    ops::paged_attention(stream,
                         golden("q"),
                         golden("qo_indptr"),
                         {.pages = golden("pool"),
                          .paged_kv_indptr = golden("paged_kv_indptr"),
                          .paged_kv_indices = golden("paged_kv_indices"),
                          .paged_kv_last_page_len = golden("paged_kv_last_page_len")},
                         {.scale = static_cast<float>(config.at("scale").get_double()),
                          .causal = config.at("causal").get_bool()},
                         out);
    expect_equal(one, "out", out, golden("out"));
    ++num_cases;
  }
  EXPECT_GE(num_cases, 13);
}

}  // namespace
}  // namespace mstar
