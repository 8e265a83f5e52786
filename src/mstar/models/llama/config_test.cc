#include "mstar/models/llama/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::llama {
namespace {

// The header of a GGUF model without weights to speak of.
class GgufModel {
 public:
  GgufModel& number(const std::string& key, uint32_t value) {
    entry(key, 4);
    return put(value);
  }

  GgufModel& real(const std::string& key, float value) {
    entry(key, 6);
    return put(value);
  }

  GgufModel& word(const std::string& key, const std::string& value) {
    entry(key, 8);
    return text(value);
  }

  // Dims as the file has them, the innermost first.
  void tensor(const std::string& name,
              const std::vector<uint64_t>& dims,
              const std::vector<float>& values) {
    tensors_.push_back({name, dims, values});
  }

  std::unique_ptr<GgufFile> open() {
    std::string header = "GGUF";
    append(header, uint32_t{3});
    append(header, static_cast<uint64_t>(tensors_.size()));
    append(header, num_entries_);
    header += entries_;
    std::string data;
    for (const TensorEntry& one : tensors_) {
      append(header, static_cast<uint64_t>(one.name.size()));
      header += one.name;
      append(header, static_cast<uint32_t>(one.dims.size()));
      for (const uint64_t dim : one.dims) {
        append(header, dim);
      }
      append(header, uint32_t{0});  // f32
      append(header, static_cast<uint64_t>(data.size()));
      for (const float value : one.values) {
        append(data, value);
      }
      data.append((32 - data.size() % 32) % 32, '\0');
    }
    header.append((32 - header.size() % 32) % 32, '\0');
    const auto path =
        std::filesystem::path(::testing::TempDir()) / str_cat("llama_config_", getpid(), ".gguf");
    std::ofstream(path, std::ios::binary) << header << data;
    auto file = GgufFile::open(path.string());
    std::filesystem::remove(path);
    return file;
  }

 private:
  struct TensorEntry {
    std::string name;
    std::vector<uint64_t> dims;
    std::vector<float> values;
  };

  template <typename T>
  static void append(std::string& bytes, T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes.append(raw, sizeof(T));
  }

  template <typename T>
  GgufModel& put(T value) {
    append(entries_, value);
    return *this;
  }

  GgufModel& text(const std::string& value) {
    put(static_cast<uint64_t>(value.size()));
    entries_ += value;
    return *this;
  }

  void entry(const std::string& key, uint32_t type) {
    ++num_entries_;
    text(key).put(type);
  }

  uint64_t num_entries_ = 0;
  std::string entries_;
  std::vector<TensorEntry> tensors_;
};

constexpr int kHeadDim = 64;
constexpr double kTheta = 500000.0;

GgufModel model(const std::string& arch = "llama") {
  GgufModel out;
  out.word("general.architecture", arch);
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, uint32_t>>{{"embedding_length", 8},
                                                     {"feed_forward_length", 16},
                                                     {"block_count", 1},
                                                     {"attention.head_count", 4},
                                                     {"attention.head_count_kv", 2},
                                                     {"attention.key_length", kHeadDim},
                                                     {"context_length", 131072}}) {
    out.number(str_cat(arch, ".", key), value);
  }
  out.real(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
  out.real(arch + ".rope.freq_base", static_cast<float>(kTheta));
  out.tensor("token_embd.weight", {8, 2}, std::vector<float>(16, 0.5F));
  return out;
}

// Divisors as converters of Llama 3.1 and later write them, computed here from the rule's words:
// wavelengths below context / 4 stay, above the context they are stretched, in between is blended.
std::vector<float> llama31_divisors(double factor, double context = 8192.0) {
  std::vector<float> out;
  for (int index = 0; index < kHeadDim / 2; ++index) {
    const double frequency = 1.0 / std::pow(kTheta, 2.0 * index / kHeadDim);
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < context / 4.0) {
      out.push_back(1.0F);
    } else if (wavelength > context) {
      out.push_back(static_cast<float>(factor));
    } else {
      const double smooth = (context / wavelength - 1.0) / 3.0;
      out.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth)));
    }
  }
  return out;
}

std::string message_of(GgufModel& file) {
  try {
    const auto open = file.open();
    LlamaConfig::from_gguf(*open);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(LlamaConfig, GgufRopeDivisorsAreLlama31sRule) {
  for (const float factor : {8.0F, 32.0F}) {
    GgufModel file = model();
    const std::vector<float> divisors = llama31_divisors(factor);
    file.tensor("rope_freqs.weight", {kHeadDim / 2}, divisors);
    const auto open = file.open();
    const RopeConfig rope = LlamaConfig::from_gguf(*open).rope;
    EXPECT_EQ(rope.scaling, RopeConfig::Scaling::kLlama31);
    EXPECT_EQ(rope.scale, factor);
    const std::vector<float> frequencies = rope_inv_freq(rope).to_floats();
    for (size_t index = 0; index < divisors.size(); ++index) {
      const double want =
          1.0 / std::pow(kTheta, 2.0 * static_cast<double>(index) / kHeadDim) / divisors[index];
      EXPECT_NEAR(frequencies[index] / want, 1.0, 1e-4) << index;
    }
  }
}

TEST(LlamaConfig, OtherRopeDivisorsAreRefused) {
  GgufModel other_context = model();
  other_context.tensor("rope_freqs.weight", {kHeadDim / 2}, llama31_divisors(8.0, 4096.0));
  EXPECT_NE(message_of(other_context).find("Llama 3.1's rule"), std::string::npos);
  GgufModel short_one = model();
  short_one.tensor("rope_freqs.weight", {3}, {1, 1, 1});
  EXPECT_NE(message_of(short_one).find("one f32 for each of 32"), std::string::npos);
  GgufModel not_numbers = model();
  not_numbers.tensor(
      "rope_freqs.weight", {kHeadDim / 2}, std::vector<float>(kHeadDim / 2, std::nanf("")));
  EXPECT_NE(message_of(not_numbers), "");
}

TEST(LlamaConfig, GgufGemmaHasItsOffsetInTheWeights) {
  GgufModel file = model("gemma");
  const auto open = file.open();
  const LlamaConfig config = LlamaConfig::from_gguf(*open);
  EXPECT_TRUE(config.gemma_mode);
  EXPECT_FALSE(config.unit_offset);
  EXPECT_FALSE(config.rope.interleave);
  EXPECT_TRUE(config.tie_word_embeddings);
}

Json hugging_face(const std::string& changes) {
  Json json = Json::parse(R"({"model_type":"qwen2","hidden_size":8,"intermediate_size":16,
    "num_hidden_layers":4,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":10,
    "max_position_embeddings":64,"rms_norm_eps":1e-6,"hidden_act":"silu","rope_theta":10000.0})");
  const Json more = Json::parse(changes);
  for (const auto& [key, value] : more.get_object()) {
    json.set(key, value);
  }
  return json;
}

TEST(LlamaConfig, SlidingWindowsOfAllLayersOrNone) {
  const auto window = [](const std::string& changes) {
    return LlamaConfig::from_hugging_face(hugging_face(changes), "c.json").sliding_window;
  };
  EXPECT_EQ(window(R"({"sliding_window":32})"), 0);
  EXPECT_EQ(window(R"({"sliding_window":32,"use_sliding_window":true})"), 32);
  EXPECT_EQ(window(R"({"sliding_window":32,"use_sliding_window":true,"max_window_layers":4})"), 0);
  EXPECT_EQ(window(R"({"model_type":"mistral","sliding_window":16})"), 16);
  EXPECT_EQ(window(R"({"model_type":"mistral","sliding_window":null})"), 0);
  EXPECT_THROW(window(R"({"sliding_window":32,"use_sliding_window":true,"max_window_layers":2})"),
               Error);
}

TEST(LlamaConfig, SaysWhatIsWrong) {
  const auto message = [](const std::string& changes) -> std::string {
    try {
      LlamaConfig::from_hugging_face(hugging_face(changes), "c.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("{}"), "");
  EXPECT_NE(message(R"({"num_key_value_heads":0})").find("num_key_value_heads is 0"),
            std::string::npos);
  EXPECT_NE(message(R"({"head_dim":7})").find("odd"), std::string::npos);
  EXPECT_NE(message(R"({"rope_theta":-1.0})").find("rope_theta"), std::string::npos);
  EXPECT_NE(message(R"({"rope_scaling":{"rope_type":"yarn","factor":4.0}})").find("yarn"),
            std::string::npos);
  EXPECT_NE(message(R"({"model_type":"gpt2"})").find("expected one of llama"), std::string::npos);
}

}  // namespace
}  // namespace mstar::llama
