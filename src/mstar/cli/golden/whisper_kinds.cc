// Speech: features of recorded sound, and an encoder-decoder's answers alone, together, and in one
// pass.
#include <algorithm>
#include <cstring>

#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/cli/golden/resource_rig.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/models/whisper/transformer.h"

namespace mstar::golden {

namespace {

void run_features(const GoldenCase& golden, RunContext&, CaseResult& result) {
  whisper::LogMel::Config config;
  config.num_mel_bins = golden.get_int("num_mel_bins");
  config.sampling_rate = golden.get_int("sampling_rate");
  config.hop_length = golden.get_int("hop_length");
  config.n_fft = golden.get_int("n_fft");
  config.num_frames = golden.get_int("chunk_seconds") * config.sampling_rate / config.hop_length;
  const whisper::LogMel log_mel(config);
  for (int index = 0; golden.has(str_cat("audio", index)); ++index) {
    const std::vector<float> audio = golden.tensor(str_cat("audio", index)).to_floats();
    result.expect(str_cat("features", index), log_mel(audio).transpose(0, 1).copy());
  }
}

// One request's part of a step.
struct Row {
  RequestHandle request = -1;
  std::vector<int32_t> ids;
  Tensor states;  // defined in the request's first step
};

// Both halves of the model over resources of their own.
class WhisperRig {
 public:
  WhisperRig(const std::string& folder, RunContext& context, int num_requests)
      : context_(context),
        config_(read_config(folder)),
        encoder_(config_),
        decoder_(config_),
        rig_(specs(config_), num_requests) {
    const auto reader = open_checkpoint(folder);
    const FinalizeOptions options{context.pool};
    encoder_.load(*reader, options);
    decoder_.load(*reader, options);
    encoder_.bind_resources(rig_.resources());
    decoder_.bind_resources(rig_.resources());
  }

  // features [n, num_frames, num_mel_bins] -> [n * max_source_positions, d_model]
  Tensor encode(const Tensor& features) {
    SubmoduleStep step;
    for (int64_t row = 0; row < features.dim(0); ++row) {
      step.add_segment(static_cast<RequestHandle>(row),
                       kMainLabel,
                       static_cast<int32_t>(config_.max_source_positions));
    }
    step.attention.add(rig_.id(whisper::kEncoderAttention)).causal = false;
    Tensor out;
    rig_.run(context_.stream, step, [&](const AttentionContext& at) {
      out = encoder_.forward(context_.stream, features, at, DType::kF32);
    });
    return out;
  }

  // Logits of every token of every row, [tokens, vocab_size].
  Tensor decode(const std::vector<Row>& rows) {
    SubmoduleStep step;
    std::vector<int32_t> ids;
    Tensor states;
    step.kv.add(rig_.id(whisper::kKv));
    KVStep& cross = step.kv.add(rig_.id(whisper::kCrossKv));
    for (const Row& row : rows) {
      step.add_segment(row.request, kMainLabel, static_cast<int32_t>(row.ids.size()));
      cross.segments.push_back(
          {row.request,
           kMainLabel,
           static_cast<int32_t>(row.states.defined() ? row.states.dim(0) : 0)});
      ids.insert(ids.end(), row.ids.begin(), row.ids.end());
      if (row.states.defined()) {
        states = states.defined() ? below(states, row.states) : row.states;
      }
    }
    step.attention.add(rig_.id(whisper::kAttention)).causal = true;
    step.attention.add(rig_.id(whisper::kCrossAttention)).causal = false;
    step.position.add(rig_.id(whisper::kPositions));
    auto& positions = dynamic_cast<PositionResource&>(*rig_.resources().at(whisper::kPositions));
    Tensor logits;
    rig_.run(context_.stream, step, [&](const AttentionContext& at) {
      if (states.defined()) {
        decoder_.write_context(context_.stream, states, at);
      }
      const Tensor tokens = Tensor::from(ids, {static_cast<int64_t>(ids.size())});
      logits = decoder_.logits(
          context_.stream,
          decoder_.forward(context_.stream, tokens, positions.pos_ids(at), at, DType::kF32));
    });
    return logits;
  }

  const whisper::WhisperConfig& config() const { return config_; }

 private:
  static whisper::WhisperConfig read_config(const std::string& folder) {
    const std::string path = folder + "/config.json";
    return whisper::WhisperConfig::from_hugging_face(Json::parse(read_text_file(path), path), path);
  }

  static ResourceRig::Specs specs(const whisper::WhisperConfig& config) {
    KVSpec kv = small_kv(config.decoder_attention_heads,
                         config.d_model / config.decoder_attention_heads,
                         DType::kF32);
    kv.num_layers = config.decoder_layers;
    kv.max_num_pages = 256;
    AttentionSpec encoder;
    encoder.kind = AttentionKind::kRagged;
    AttentionSpec own;
    own.kv = whisper::kKv;
    AttentionSpec cross;
    cross.kind = AttentionKind::kCross;
    cross.kv = whisper::kCrossKv;
    PositionSpec positions;
    positions.kv = whisper::kKv;
    positions.use_rope = false;
    return {{whisper::kKv, kv},
            {whisper::kCrossKv, kv},
            {whisper::kEncoderAttention, encoder},
            {whisper::kAttention, own},
            {whisper::kCrossAttention, cross},
            {whisper::kPositions, positions}};
  }

  static Tensor below(const Tensor& first, const Tensor& second) {
    Tensor joined = Tensor::empty({first.dim(0) + second.dim(0), first.dim(1)}, first.dtype());
    std::memcpy(joined.bytes(), first.bytes(), static_cast<size_t>(first.size_bytes()));
    std::memcpy(joined.bytes() + first.size_bytes(),
                second.bytes(),
                static_cast<size_t>(second.size_bytes()));
    return joined;
  }

  RunContext& context_;
  whisper::WhisperConfig config_;
  whisper::WhisperEncoder encoder_;
  whisper::WhisperDecoder decoder_;
  ResourceRig rig_;
};

int32_t best(const Tensor& logits, int64_t row) {
  const auto* values = logits.data<float>() + row * logits.dim(1);
  return static_cast<int32_t>(std::max_element(values, values + logits.dim(1)) - values);
}

// One prompt's answers as they grow.
struct Answer {
  Row row;
  std::vector<float> logits;
  std::vector<int64_t> tokens;
  int64_t num_prompt = 0;
};

std::vector<int32_t> ids_of(const GoldenCase& golden, const std::string& name) {
  const std::vector<int64_t> wide = golden.tensor(name).to_ints();
  return {wide.begin(), wide.end()};
}

// Takes the likeliest token `num_tokens` times, all prompts in one batch; the first step writes
// their contexts. Logits of the last token too.
void answer(WhisperRig& rig, std::vector<Answer>& answers, int64_t num_tokens) {
  for (int64_t token = 0; token <= num_tokens; ++token) {
    std::vector<Row> rows;
    for (const Answer& one : answers) {
      rows.push_back(one.row);
    }
    const Tensor logits = rig.decode(rows);
    const int64_t vocab = logits.dim(1);
    int64_t end = 0;
    for (Answer& one : answers) {
      const auto count = static_cast<int64_t>(one.row.ids.size());
      const float* from = logits.data<float>() + end * vocab;
      one.logits.insert(one.logits.end(), from, from + count * vocab);
      end += count;
      const int32_t drawn = best(logits, end - 1);
      if (token < num_tokens) {
        one.tokens.push_back(drawn);
      }
      one.row.ids = {drawn};
      one.row.states = {};
    }
  }
}

void expect_answers(CaseResult& result,
                    const std::vector<Answer>& answers,
                    int first,
                    int64_t vocab,
                    std::string_view variant) {
  for (size_t index = 0; index < answers.size(); ++index) {
    const Answer& one = answers[index];
    const auto number = first + static_cast<int>(index);
    result.expect(str_cat("greedy", number),
                  Tensor::from(one.tokens, {static_cast<int64_t>(one.tokens.size())}),
                  variant);
    result.expect(
        str_cat("logits", number),
        Tensor::from(one.logits, {static_cast<int64_t>(one.logits.size()) / vocab, vocab}),
        variant);
  }
}

void run_whisper(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const auto num_prompts = static_cast<int>(golden.get_int("prompts"));
  const int64_t num_tokens = golden.get_int("new_tokens");
  WhisperRig rig(
      str_cat(golden.folder, "/", golden.get_string("checkpoint")), context, 3 * num_prompts);
  const whisper::WhisperConfig& config = rig.config();
  const int64_t vocab = config.vocab_size;
  const int64_t states_len = config.max_source_positions;
  Tensor features =
      Tensor::empty({num_prompts, config.num_frames(), config.num_mel_bins}, DType::kF32);
  std::vector<Answer> together;
  for (int index = 0; index < num_prompts; ++index) {
    Tensor own = features.select(0, index);
    ops::copy(context.stream, golden.tensor(str_cat("features", index)).transpose(0, 1), own);
    const Tensor states = rig.encode(own.unsqueeze(0));
    result.expect(str_cat("encoder_out", index), states, "alone");
    const std::vector<int32_t> prompt = ids_of(golden, str_cat("prompt", index));
    std::vector<Answer> alone(1);
    alone[0].row = {index, prompt, states};
    answer(rig, alone, num_tokens);
    expect_answers(result, alone, index, vocab, "alone");

    std::vector<int32_t> whole = prompt;
    for (const int32_t token : ids_of(golden, str_cat("greedy", index))) {
      whole.push_back(token);
    }
    result.expect(str_cat("logits", index),
                  rig.decode({{num_prompts + index, whole, states}}),
                  "in one pass");
    together.emplace_back().row = {2 * num_prompts + index, prompt, {}};
  }
  const Tensor states = rig.encode(features);
  for (int index = 0; index < num_prompts; ++index) {
    const Tensor own = states.slice(0, index * states_len, (index + 1) * states_len);
    result.expect(str_cat("encoder_out", index), own, "together");
    together[static_cast<size_t>(index)].row.states = own;
  }
  answer(rig, together, num_tokens);
  expect_answers(result, together, 0, vocab, "together");
}

}  // namespace

void add_whisper_kinds(Registry& registry) {
  registry.add_prefix("whisper", run_whisper);
  registry.add_prefix("whisper_features_", run_features);
}

}  // namespace mstar::golden
