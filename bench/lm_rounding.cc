#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/checkpoint/gguf.h"
#include "mstar/cli/golden/resource_rig.h"
#include "mstar/models/common/text_front_end.h"
#include "mstar/models/llama/transformer.h"
#include "mstar/tensor/cpu_stream.h"

#include "bench/arguments.h"
#include "bench/lm.h"

namespace mstar::bench {

namespace {

constexpr const char* kUsage =
    "usage: mstar_bench rounding MODEL.gguf --text FILE [--window TOKENS] [--windows N]\n"
    "                            [--threads N] [--dump FILE]\n"
    "  --dump  ids (i32) of all windows, then their logits (f32) with rounded and with exact\n"
    "          activations, as raw numbers\n";

struct RoundingOptions {
  std::string model;
  std::string text;
  std::string dump;
  int64_t window = 256;
  int64_t windows = 4;
  int threads = 0;
};

RoundingOptions parse(const std::vector<std::string>& words) {
  RoundingOptions options;
  for (Arguments arguments(words); arguments.next();) {
    const std::string& word = arguments.word();
    if (word == "--text") {
      options.text = arguments.value();
    } else if (word == "--dump") {
      options.dump = arguments.value();
    } else if (word == "--window") {
      options.window = arguments.number();
    } else if (word == "--windows") {
      options.windows = arguments.number();
    } else if (word == "--threads") {
      options.threads = arguments.count();
    } else if (word.starts_with("--") || !options.model.empty()) {
      arguments.refuse(kUsage);
    } else {
      options.model = word;
    }
  }
  if (options.model.empty() || options.text.empty()) {
    throw Error(ErrorCode::kInvalidArgument, kUsage);
  }
  return options;
}

using Ids = std::vector<int32_t>;

// Logits of every position of one window.
Tensor logits_of(llama::LlamaTransformer& model, CpuStream& stream, const Ids& ids) {
  const llama::LlamaConfig& config = model.config();
  KVSpec kv{.num_layers = config.num_hidden_layers,
            .num_kv_heads = config.num_key_value_heads,
            .head_dim = config.head_dim,
            .page_size = 16,
            .max_num_pages = static_cast<int64_t>(ids.size()) / 16 + 2,
            .dtype = DType::kF32};
  AttentionSpec attention{.kv = "kv"};
  attention.options.window = static_cast<int32_t>(config.sliding_window);
  golden::ResourceRig rig(
      {{"kv", kv}, {"attn", attention}, {"rope", PositionSpec{.kv = "kv", .rope = config.rope}}},
      1);
  model.bind_resources(rig.resources());
  SubmoduleStep step;
  step.add_segment(0, kMainLabel, static_cast<int32_t>(ids.size()));
  step.kv.add(rig.id("kv"));
  step.attention.add(rig.id("attn")).causal = true;
  step.position.add(rig.id("rope"));
  Tensor logits;
  rig.run(stream, step, [&](const AttentionContext& context) {
    const Tensor input = Tensor::from(ids, {static_cast<int64_t>(ids.size())});
    const Tensor hidden = model.embed(stream, input, DType::kF32);
    logits = model.logits(stream, model.forward(stream, hidden, context)).copy();
  });
  return logits;
}

std::unique_ptr<llama::LlamaTransformer> load(const GgufFile& file,
                                              ThreadPool& pool,
                                              Activations activations) {
  auto model = std::make_unique<llama::LlamaTransformer>(llama::LlamaConfig::from_gguf(file));
  FinalizeOptions options{pool};
  options.activations = activations;
  model->load(file, options);
  return model;
}

// log softmax of a row, in place.
void to_logprobs(std::vector<double>& row) {
  const double largest = *std::ranges::max_element(row);
  double sum = 0.0;
  for (const double value : row) {
    sum += std::exp(value - largest);
  }
  const double log_sum = largest + std::log(sum);
  for (double& value : row) {
    value -= log_sum;
  }
}

struct Scores {
  int64_t num_positions = 0;
  int64_t num_same_top = 0;
  double kl = 0.0;  // summed: exact from rounded
  double worst_kl = 0.0;
  double rounded_loss = 0.0;  // summed -log p(next token)
  double exact_loss = 0.0;

  void add(const Tensor& rounded, const Tensor& exact, const Ids& ids) {
    const std::vector<float> all_rounded = rounded.to_floats();
    const std::vector<float> all_exact = exact.to_floats();
    const auto width = static_cast<size_t>(exact.dim(1));
    for (size_t position = 0; position + 1 < ids.size(); ++position) {
      const auto row = [&](const std::vector<float>& all) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(position * width);
        std::vector<double> values(begin, begin + static_cast<std::ptrdiff_t>(width));
        to_logprobs(values);
        return values;
      };
      const std::vector<double> p = row(all_exact);
      const std::vector<double> q = row(all_rounded);
      double divergence = 0.0;
      for (size_t token = 0; token < width; ++token) {
        divergence += std::exp(p[token]) * (p[token] - q[token]);
      }
      const auto top = [](const std::vector<double>& values) {
        return std::ranges::max_element(values) - values.begin();
      };
      ++num_positions;
      num_same_top += top(p) == top(q) ? 1 : 0;
      kl += divergence;
      worst_kl = std::max(worst_kl, divergence);
      const auto next = static_cast<size_t>(ids[position + 1]);
      exact_loss -= p[next];
      rounded_loss -= q[next];
    }
  }
};

void dump(std::FILE* file, const void* data, int64_t size_bytes) {
  if (file != nullptr) {
    std::fwrite(data, 1, static_cast<size_t>(size_bytes), file);
  }
}

}  // namespace

int rounding_command(const std::vector<std::string>& words) {
  const RoundingOptions options = parse(words);
  const auto file = GgufFile::open(options.model);
  const Ids all = TextFrontEnd::from_gguf(*file).encode_text(read_text_file(options.text));
  std::vector<Ids> windows;
  for (int64_t index = 0; index < options.windows; ++index) {
    const int64_t begin = index * options.window;
    const int64_t end = std::min<int64_t>(begin + options.window, std::ssize(all));
    if (end - begin >= 2) {
      windows.emplace_back(all.begin() + begin, all.begin() + end);
    }
  }
  if (windows.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "[mstar_bench] the text is too short");
  }
  ThreadPool pool(options.threads);
  CpuStream stream(pool);
  std::vector<Tensor> logits[2];
  for (const Activations activations : {Activations::kInt8, Activations::kExact}) {
    const auto model = load(*file, pool, activations);
    for (const Ids& ids : windows) {
      logits[activations == Activations::kExact ? 1 : 0].push_back(logits_of(*model, stream, ids));
    }
  }
  Scores scores;
  std::FILE* out = options.dump.empty() ? nullptr : std::fopen(options.dump.c_str(), "wb");
  for (size_t index = 0; index < windows.size(); ++index) {
    scores.add(logits[0][index], logits[1][index], windows[index]);
    dump(out, windows[index].data(), std::ssize(windows[index]) * 4);
  }
  for (const auto& kind : logits) {
    for (const Tensor& tensor : kind) {
      dump(out, tensor.bytes(), tensor.size_bytes());
    }
  }
  if (out != nullptr) {
    std::fclose(out);
  }
  const auto count = static_cast<double>(scores.num_positions);
  std::printf("%lld positions\n", static_cast<long long>(scores.num_positions));
  std::printf("perplexity     exact %.4f  rounded %.4f\n",
              std::exp(scores.exact_loss / count),
              std::exp(scores.rounded_loss / count));
  std::printf("divergence     mean %.6f  worst %.6f nats\n", scores.kl / count, scores.worst_kl);
  std::printf("same top token %.2f %%\n", 100.0 * static_cast<double>(scores.num_same_top) / count);
  return 0;
}

}  // namespace mstar::bench
