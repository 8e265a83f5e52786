// The ops alone against recorded tensors of torch and transformers (tests/golden/components): the
// cases that need no component around them.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/isa_test_util.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/attention.h"
#include "mstar/kernels/ops/norm.h"
#include "mstar/kernels/ops/rope.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {
namespace {

const std::string kFolder = std::string(MSTAR_SOURCE_DIR) + "/tests/golden/components/";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// One recorded case: its record and its tensors, read without any suspicion.
struct Case {
  Json record;
  std::map<std::string, Tensor> tensors;

  const Json& config() const { return record.at("config"); }

  Tensor& at(const std::string& name) { return tensors.at(name); }

  Tolerance tolerance(const std::string& name) const {
    const Json& t = record.at("tolerance").at(name);
    if (t.contains("exact")) {
      return {.exact = true};
    }
    return {.atol = t.at("atol").get_double(), .rtol = t.at("rtol").get_double()};
  }
};

std::map<std::string, Tensor> read_tensors(const std::string& path) {
  const std::string bytes = read_file(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  const Json header = Json::parse(std::string_view(bytes).substr(8, header_size), path);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : header.get_object()) {
    if (name == "__metadata__") {
      continue;
    }
    Shape shape;
    for (const Json& dim : entry.at("shape").get_array()) {
      shape.push_back(dim.get_int());
    }
    Tensor tensor = Tensor::empty(shape, *parse_dtype(entry.at("dtype").get_string()));
    const auto begin = static_cast<size_t>(entry.at("data_offsets")[0].get_int());
    std::memcpy(tensor.bytes(),
                bytes.data() + 8 + header_size + begin,
                static_cast<size_t>(tensor.size_bytes()));
    tensors[name] = tensor;
  }
  return tensors;
}

// Calls check(stream, case) for every case whose name starts with `prefix`, on every path and
// through the slow twins.
template <typename Check>
void for_each_case(const std::string& prefix, int expected, Check&& check) {
  const Json cases = Json::parse(read_file(kFolder + "cases.json"), "cases.json");
  const Json& list = cases.is_array() ? cases : cases.at("cases");
  ThreadPool pool(2);
  CpuStream stream(pool);
  int found = 0;
  for (const Json& record : list.get_array()) {
    const std::string& name = record.at("name").get_string();
    if (!name.starts_with(prefix)) {
      continue;
    }
    ++found;
    SCOPED_TRACE(name);
    const std::string path = kFolder + record.at("file").get_string();
    for (const Isa isa : available_isas()) {
      const ScopedIsa scope(isa);
      Case item{record, read_tensors(path)};
      check(stream, item);
    }
    const ScopedReference slow;
    Case item{record, read_tensors(path)};
    check(stream, item);
  }
  EXPECT_EQ(found, expected);
}

void expect_close(const Case& item, const std::string& name, const Tensor& got) {
  const Comparison result = compare(got, item.tensors.at(name), item.tolerance(name));
  EXPECT_TRUE(result.passed) << name << " " << result.to_string();
}

TEST(Golden, RmsNorm) {
  for_each_case("rms_norm", 10, [](Stream& stream, Case& item) {
    RmsNormOptions options;
    options.eps = static_cast<float>(item.config().at("eps").get_double());
    options.gemma_mode = item.config().at("gemma_mode").get_bool();
    const Tensor& x = item.at("x");
    Tensor out = Tensor::empty(x.shape(), x.dtype());
    ops::rms_norm(stream, x, item.at("weight"), options, out);
    expect_close(item, "out", out);
    if (x.dtype() == DType::kBF16 && !options.gemma_mode) {
      options.rounding = RmsNormRounding::kBeforeWeight;
      ops::rms_norm(stream, x, item.at("weight"), options, out);
      const auto same = compare(out, item.at("out_two_roundings"), {.exact = true});
      EXPECT_LE(same.num_wrong, 1) << same.to_string();  // a tie may fall to the other side
    }
  });
}

TEST(Golden, LayerNorm) {
  for_each_case("layer_norm", 1, [](Stream& stream, Case& item) {
    Tensor out = Tensor::empty(item.at("x").shape(), DType::kF32);
    const auto eps = static_cast<float>(item.config().at("eps").get_double());
    ops::layer_norm(stream, item.at("x"), item.at("weight"), item.at("bias"), eps, out);
    expect_close(item, "out", out);
  });
}

TEST(Golden, Activations) {
  for_each_case("activation_", 10, [](Stream& stream, Case& item) {
    const Activation activation = parse_activation(item.config().at("activation").get_string());
    Tensor out = Tensor::empty(item.at("x").shape(), item.at("x").dtype());
    ops::activate(stream, item.at("x"), activation, out);
    expect_close(item, "out", out);
  });
}

RopeConfig rope_config(const Json& config) {
  RopeConfig rope;
  rope.head_dim = config.at("head_dim").get_int();
  rope.theta = static_cast<float>(config.at("rope_theta").get_double());
  rope.interleave = config.at("interleave").get_bool();
  if (const Json* dim = config.find("rotary_dim")) {
    rope.rotary_dim = dim->get_int();
  }
  if (const Json* scaling = config.find("scaling"); scaling && scaling->get_string() != "default") {
    rope.scaling = scaling->get_string() == "linear" ? RopeConfig::Scaling::kLinear
                                                     : RopeConfig::Scaling::kLlama31;
    rope.scale = static_cast<float>(config.at("rope_scale").get_double());
  }
  if (rope.scaling == RopeConfig::Scaling::kLlama31) {
    rope.low_freq_factor = static_cast<float>(config.at("rope_low_freq_factor").get_double());
    rope.high_freq_factor = static_cast<float>(config.at("rope_high_freq_factor").get_double());
    rope.old_context_len = config.at("rope_old_context_len").get_int();
  }
  if (const Json* section = config.find("mrope_section")) {
    rope.layout = config.at("mrope_layout").get_string() == "sectioned"
                      ? RopeConfig::Layout::kSectioned
                      : RopeConfig::Layout::kInterleaved;
    for (size_t axis = 0; axis < 3; ++axis) {
      rope.section[axis] = static_cast<int32_t>((*section)[axis].get_int());
    }
  }
  return rope;
}

void check_rope(Stream& stream, Case& item) {
  const RopeConfig config = rope_config(item.config());
  const Tensor inv_freq = rope_inv_freq(config);
  if (item.tensors.contains("inv_freq")) {
    const auto same = compare(inv_freq, item.at("inv_freq"), {.exact = true});
    EXPECT_TRUE(same.passed) << same.to_string();
  }
  const Tensor& positions = item.at("positions");
  Tensor cos = Tensor::empty({positions.dim(-1), inv_freq.dim(0)}, DType::kF32);
  Tensor sin = Tensor::empty(cos.shape(), DType::kF32);
  ops::rope_table(stream, positions, inv_freq, config, cos, sin);
  for (const std::string name : {"q", "k"}) {
    Tensor x = item.at(name).copy();
    ops::apply_rope(stream, cos, sin, config, false, x);
    expect_close(item, name + "_out", x);
    if (item.tensors.contains(name + "_out_hf")) {
      x = item.at(name).copy();
      ops::apply_rope(stream, cos, sin, config, true, x);
      const auto same = compare(x, item.at(name + "_out_hf"), {.exact = true});
      EXPECT_TRUE(same.passed) << same.to_string();
    }
  }
}

TEST(Golden, Rope) {
  for_each_case("rope_", 12, check_rope);
}

TEST(Golden, MultiAxisRope) {
  for_each_case("mrope_", 4, check_rope);
}

TEST(Golden, PagedAttention) {
  for_each_case("paged_", 15, [](Stream& stream, Case& item) {
    PagedKv kv{item.at("pool"),
               item.at("paged_kv_indptr"),
               item.at("paged_kv_indices"),
               item.at("paged_kv_last_page_len")};
    if (item.tensors.contains("pool_after")) {
      ops::write_paged_kv(stream,
                          item.at("k"),
                          item.at("v"),
                          item.at("token_to_page"),
                          item.at("token_to_slot"),
                          kv.pages);
      expect_close(item, "pool_after", kv.pages);
      return;
    }
    AttentionOptions options;
    options.causal = item.config().at("causal").get_bool();
    options.scale = static_cast<float>(item.config().at("scale").get_double());
    Tensor out = Tensor::empty(item.at("q").shape(), item.at("q").dtype());
    ops::paged_attention(stream, item.at("q"), item.at("qo_indptr"), kv, options, out);
    expect_close(item, "out", out);
  });
}

}  // namespace
}  // namespace mstar
