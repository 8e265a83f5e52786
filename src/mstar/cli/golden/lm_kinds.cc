// Language models: logits at every position and greedy continuations, however the tokens are cut
// and whoever shares the batch.
#include <algorithm>
#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/checkpoint/gguf.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/cli/golden/resource_rig.h"
#include "mstar/models/llama/transformer.h"
#include "mstar/text/detokenizer.h"

namespace mstar::golden {

namespace {

using llama::LlamaConfig;
using llama::LlamaTransformer;

using Ids = std::vector<int32_t>;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;

Ids ids_of(const Tensor& tensor) {
  Ids ids;
  for (const int64_t id : tensor.to_ints()) {
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

Tensor tensor_of(const Ids& ids) {
  return Tensor::from(ids, {static_cast<int64_t>(ids.size())});
}

Ids joined(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

ResourceRig::Specs specs_of(const LlamaConfig& config) {
  KVSpec kv{.num_layers = config.num_hidden_layers,
            .num_kv_heads = config.num_key_value_heads,
            .head_dim = config.head_dim,
            .page_size = 16,
            .max_num_pages = 128,
            .dtype = DType::kF32};
  AttentionSpec attention;
  attention.kv = "kv";
  attention.options.window = static_cast<int32_t>(config.sliding_window);
  PositionSpec positions;
  positions.kv = "kv";
  positions.rope = config.rope;
  return {{"kv", kv}, {"attn", attention}, {"rope", positions}};
}

// Sequences that grow together over one cache.
class Sequences {
 public:
  Sequences(LlamaTransformer& model, RunContext& context, size_t count)
      : model_(model),
        context_(context),
        rig_(specs_of(model.config()), static_cast<int>(count)),
        count_(count) {
    model_.bind_resources(rig_.resources());
  }

  // Appends `chunks[i]` to sequence i, all in one step; empty ones take no part. Gives the logits
  // of the new tokens, packed in order.
  Tensor append(const std::vector<Ids>& chunks) {
    SubmoduleStep step;
    Ids packed;
    for (size_t index = 0; index < count_; ++index) {
      if (!chunks[index].empty()) {
        step.add_segment(static_cast<RequestHandle>(index),
                         kMainLabel,
                         static_cast<int32_t>(chunks[index].size()));
        packed = joined(std::move(packed), chunks[index]);
      }
    }
    step.kv.add(rig_.id("kv"));
    step.attention.add(rig_.id("attn")).causal = true;
    step.position.add(rig_.id("rope"));
    Tensor logits;
    rig_.run(context_.stream, step, [&](const AttentionContext& attention) {
      const Tensor hidden = model_.embed(context_.stream, tensor_of(packed), DType::kF32);
      logits =
          model_.logits(context_.stream, model_.forward(context_.stream, hidden, attention)).copy();
    });
    return logits;
  }

 private:
  LlamaTransformer& model_;
  RunContext& context_;
  ResourceRig rig_;
  size_t count_;
};

// Collects rows of logits, in order.
class Rows {
 public:
  void add(const Tensor& rows) {
    const std::vector<float> values = rows.to_floats();
    values_.insert(values_.end(), values.begin(), values.end());
    width_ = rows.dim(1);
  }

  Tensor tensor() const {
    return Tensor::from(values_, {static_cast<int64_t>(values_.size()) / width_, width_});
  }

 private:
  std::vector<float> values_;
  int64_t width_ = 1;
};

// Logits of every sequence, `chunk_tokens[i]` tokens of sequence i a step.
std::vector<Tensor> logits_in_chunks(LlamaTransformer& model,
                                     RunContext& context,
                                     const std::vector<Ids>& sequences,
                                     const std::vector<size_t>& chunk_tokens) {
  Sequences run(model, context, sequences.size());
  std::vector<Rows> rows(sequences.size());
  std::vector<size_t> done(sequences.size(), 0);
  while (true) {
    std::vector<Ids> chunks(sequences.size());
    size_t num_tokens = 0;
    for (size_t index = 0; index < sequences.size(); ++index) {
      const Ids& all = sequences[index];
      const size_t end = std::min(all.size(), done[index] + chunk_tokens[index]);
      chunks[index].assign(all.begin() + static_cast<std::ptrdiff_t>(done[index]),
                           all.begin() + static_cast<std::ptrdiff_t>(end));
      done[index] = end;
      num_tokens += chunks[index].size();
    }
    if (num_tokens == 0) {
      break;
    }
    const Tensor logits = run.append(chunks);
    int64_t at = 0;
    for (size_t index = 0; index < sequences.size(); ++index) {
      const auto count = static_cast<int64_t>(chunks[index].size());
      if (count > 0) {
        rows[index].add(logits.slice(0, at, at + count));
      }
      at += count;
    }
  }
  std::vector<Tensor> out;
  for (const Rows& own : rows) {
    out.push_back(own.tensor());
  }
  return out;
}

// The likeliest token of the last row.
int32_t best_of_last(const Tensor& logits) {
  const std::vector<float> last = logits.select(0, logits.dim(0) - 1).to_floats();
  return static_cast<int32_t>(std::ranges::max_element(last) - last.begin());
}

// Greedy tokens after `prompt`, at most `num_tokens`, up to and with one of `stops`.
Ids greedy(LlamaTransformer& model,
           RunContext& context,
           const Ids& prompt,
           size_t num_tokens,
           const Ids& stops) {
  Sequences run(model, context, 1);
  Ids out;
  Ids next = prompt;
  while (out.size() < num_tokens) {
    const int32_t token = best_of_last(run.append({next}));
    out.push_back(token);
    if (std::ranges::find(stops, token) != stops.end()) {
      break;
    }
    next = {token};
  }
  return out;
}

// Logits of the recorded sequences whole, in chunks, token by token, alone and together.
void expect_logits(LlamaTransformer& model,
                   RunContext& context,
                   const std::vector<Ids>& sequences,
                   const std::vector<std::string>& outputs,
                   CaseResult& result) {
  constexpr size_t kWhole = size_t{1} << 30;
  const auto expect = [&](const std::vector<size_t>& chunks, std::string_view variant) {
    const auto logits = logits_in_chunks(model, context, sequences, chunks);
    for (size_t index = 0; index < logits.size(); ++index) {
      result.expect(outputs[index], logits[index], variant);
    }
  };
  for (size_t index = 0; index < sequences.size(); ++index) {
    for (const size_t chunk : {kWhole, size_t{5}, size_t{1}}) {
      result.expect(outputs[index],
                    logits_in_chunks(model, context, {sequences[index]}, {chunk}).front(),
                    chunk == kWhole ? "whole" : str_cat("in chunks of ", chunk));
    }
  }
  if (sequences.size() > 1) {
    expect(std::vector<size_t>(sequences.size(), kWhole), "all together");
    // Every sequence at its own pace: long and short spans meet in one step.
    std::vector<size_t> paces;
    for (size_t index = 0; index < sequences.size(); ++index) {
      paces.push_back(1 + 6 * index);
    }
    expect(paces, "together at different paces");
  }
}

// Cases with prompt<i>, greedy<i> and logits<i>.
void check_prompts(const GoldenCase& golden,
                   LlamaTransformer& model,
                   RunContext& context,
                   CaseResult& result) {
  std::vector<Ids> sequences;
  std::vector<std::string> outputs;
  for (int64_t index = 0; index < golden.get_int("prompts"); ++index) {
    const Ids prompt = ids_of(golden.tensor(str_cat("prompt", index)));
    const Ids continuation = ids_of(golden.tensor(str_cat("greedy", index)));
    result.expect(str_cat("greedy", index),
                  tensor_of(greedy(model, context, prompt, continuation.size(), {})));
    sequences.push_back(joined(prompt, continuation));
    outputs.push_back(str_cat("logits", index));
  }
  expect_logits(model, context, sequences, outputs, result);
  if (golden.has("greedy0_stopped")) {
    const size_t most = ids_of(golden.tensor("greedy0")).size();
    result.expect("greedy0_stopped",
                  tensor_of(greedy(model,
                                   context,
                                   ids_of(golden.tensor("prompt0")),
                                   most,
                                   ids_of(golden.tensor("stop_token")))));
  }
}

LlamaConfig read_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return LlamaConfig::from_hugging_face(Json::parse(read_text_file(path, kMaxConfigBytes), path),
                                        path);
}

void run_checkpoint(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const std::string folder = str_cat(golden.folder, "/", golden.get_string("checkpoint"));
  LlamaTransformer model(read_config(folder));
  model.load(*open_checkpoint(folder), {context.pool});
  check_prompts(golden, model, context, result);
}

void run_gguf_model(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const auto file = GgufFile::open(str_cat(golden.folder, "/", golden.get_string("file")));
  LlamaTransformer model(LlamaConfig::from_gguf(*file));
  model.load(*file, {context.pool});
  check_prompts(golden, model, context, result);
}

// A story: its prompt as text, told until one of the model's stop tokens.
void run_story(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  if (context.model_folder.empty()) {
    result.skip("needs --model with the checkpoint the stories were told by");
    return;
  }
  LlamaTransformer model(read_config(context.model_folder));
  model.load(*open_checkpoint(context.model_folder), {context.pool});
  const Ids prompt = ids_of(golden.tensor("prompt_ids"));
  const Ids continuation = ids_of(golden.tensor("greedy"));

  const auto tokenizer = Tokenizer::load(context.model_folder);
  if (tokenizer->encode(golden.get_string("prompt"), {.add_template = true}) != prompt) {
    result.fail("the tokenizer gives other ids for the prompt");
  }
  Ids stops;
  for (const char* name : {"<s>", "</s>"}) {
    if (const auto id = tokenizer->find_token(name)) {
      stops.push_back(*id);
    }
  }
  const Ids told =
      greedy(model, context, prompt, static_cast<size_t>(golden.get_int("max_new_tokens")), stops);
  result.expect("greedy", tensor_of(told));
  const std::string text = tokenizer->decode(joined(prompt, told), true);
  if (text != golden.get_string("text")) {
    result.fail(str_cat("the text is \"", text, "\""));
  }
  expect_logits(model, context, {joined(prompt, continuation)}, {"logits"}, result);
}

}  // namespace

void add_lm_kinds(Registry& registry) {
  for (const char* type : {"llama_", "qwen2", "qwen3", "gemma", "mistral"}) {
    registry.add_prefix(type, run_checkpoint);
  }
  // Beside the decoding of its tensors (checkpoint_kinds.cc).
  registry.add_prefix("gguf_", run_gguf_model);
  registry.add_prefix("moe_gguf_", run_gguf_model);
  registry.add_prefix("story", run_story);
}

}  // namespace mstar::golden
