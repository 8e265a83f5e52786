// Cosmos3: what the reasoner sees (sizes, frames, patches, vision tower), what it answers, and the
// distribution it draws from.
#include <algorithm>
#include <span>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/cli/golden/resource_rig.h"
#include "mstar/kernels/ops/embedding.h"
#include "mstar/kernels/ops/sampling.h"
#include "mstar/models/cosmos3/config.h"
#include "mstar/models/cosmos3/reasoner_prompt.h"
#include "mstar/models/cosmos3/reasoner_submodule.h"
#include "mstar/models/cosmos3/transformer.h"
#include "mstar/models/cosmos3/vision_encoder.h"
#include "mstar/models/cosmos3/vision_input.h"

namespace mstar::golden {

namespace {

using namespace cosmos3;  // NOLINT: the family under test

// The bounds that the published preprocessors have.
constexpr int64_t kFactor = 32;
constexpr PixelRange kImagePixels{.min = 65536, .max = 16777216};
constexpr PixelRange kVideoPixels{.min = 4096, .max = 25165824};

std::string weights_folder(const GoldenCase& golden) {
  return str_cat(golden.folder, "/", golden.get_string("weights"));
}

void run_smart_resize(const GoldenCase& golden, RunContext&, CaseResult& result) {
  for (const bool video : {false, true}) {
    const char* name = video ? "out.video" : "out.image";
    const Tensor want = golden.tensor(name);
    std::vector<int64_t> rows = want.to_ints();
    const auto width = static_cast<size_t>(want.dim(1));
    for (size_t row = 0; row < rows.size(); row += width) {
      const size_t at = row + (video ? 1 : 0);
      const PixelSize size = smart_resize(video ? rows[row] : 1,
                                          {rows[at], rows[at + 1]},
                                          kFactor,
                                          video ? kVideoPixels : kImagePixels,
                                          golden.name);
      rows[at + 2] = size.height;
      rows[at + 3] = size.width;
    }
    result.expect(name, Tensor::from(rows, want.shape()));
  }
}

void run_frame_sampling(const GoldenCase& golden, RunContext&, CaseResult& result) {
  for (const auto& [name, role] : golden.roles) {
    if (role != "output") {
      continue;
    }
    // out.FRAMES_FPS
    const size_t bar = name.find('_');
    const std::vector<int64_t> frames =
        sample_frames(std::stoll(name.substr(4, bar - 4)), std::stod(name.substr(bar + 1)), {});
    result.expect(name, Tensor::from(frames, {static_cast<int64_t>(frames.size())}));
  }
}

// [c, h, w] <-> [h, w, c]
Tensor channels_last(const Tensor& picture) {
  const int order[] = {1, 2, 0};
  return picture.permute(order).copy();
}

Tensor channels_first(const Tensor& picture) {
  const int order[] = {2, 0, 1};
  return picture.permute(order).copy();
}

void run_image_preprocess(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const int64_t patch = golden.get_int("patch");
  constexpr int64_t kMerge = 2;
  const Tensor image = channels_last(golden.tensor("in.image")).unsqueeze(0);
  for (const auto& [name, role] : golden.roles) {
    if (!name.starts_with("out.resized_")) {
      continue;
    }
    const std::string key = name.substr(12);
    const size_t cross = key.find('x');
    const PixelSize size{std::stoll(key.substr(0, cross)), std::stoll(key.substr(cross + 1))};
    const Tensor resized = resize_frames(context.stream, image, size);
    result.expect(name, channels_first(resized.select(0, 0)));
    result.expect(str_cat("out.patches_", key),
                  normalize_patches(context.stream, to_patches(resized, patch, kMerge)));
  }
  const Tensor clip = golden.tensor("in.clip");
  const int order[] = {0, 2, 3, 1};
  const Tensor frames = clip.permute(order).copy();
  result.expect("out.patches_clip",
                normalize_patches(context.stream, to_patches(frames, patch, kMerge)));
}

PatchGrid grid_of(const Tensor& grid) {
  const std::vector<int64_t> sizes = grid.to_ints();
  return {.frames = sizes.at(0), .rows = sizes.at(1), .columns = sizes.at(2)};
}

std::unique_ptr<VisionEncoder> load_vision(const std::string& folder, RunContext& context) {
  const std::string path = folder + "/config.json";
  const Json own = read_json_file(path);
  // The folder's own file has the projector inside the tower's object.
  const Json config =
      Json::object({{"vision_config", own}, {"projector_config", own.at("projector_config")}});
  auto encoder = std::make_unique<VisionEncoder>(VisionConfig::parse(config, path));
  encoder->load(*open_checkpoint(folder));
  encoder->finalize({context.pool});
  return encoder;
}

void run_vision(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const auto encoder = load_vision(weights_folder(golden), context);
  const Tensor rows = encoder->tower(
      context.stream, golden.tensor("in.patches"), grid_of(golden.tensor("in.grid")));
  result.expect("out.tower", rows);
  result.expect("out.tokens", encoder->project(context.stream, rows));
}

// rows[places[i]] = vision_rows[i]; nothing without places.
void place_rows(Stream& stream,
                const Tensor& vision_rows,
                const std::vector<int32_t>& places,
                Tensor& rows) {
  if (!places.empty()) {
    const Tensor indices = Tensor::from(places, {static_cast<int64_t>(places.size())});
    ops::scatter_rows(stream, vision_rows, indices, rows);
    stream.synchronize();  // the indices must live until the op ran
  }
}

// One conversation that grows over a paged cache as the served reasoner's does.
class Conversation {
 public:
  Conversation(const Transformer& model, RunContext& context)
      : model_(model), context_(context), rig_(specs_of(model.config()), 1) {}

  // Appends tokens, vision rows in the places `placeholders` (indices into `ids`). `positions` [3,
  // n] i32; undefined: counted on. Gives the logits of the new tokens.
  Tensor append(const Tensor& ids,
                const Tensor& positions,
                int64_t advance,
                const std::vector<int32_t>& placeholders,
                const Tensor& vision_rows) {
    SubmoduleStep step;
    step.add_segment(0, kMainLabel, static_cast<int32_t>(ids.dim(0)));
    step.kv.add(rig_.id("kv"));
    step.attention.add(rig_.id("attn")).causal = true;
    PositionStep& position = step.position.add(rig_.id("rope"));
    if (positions.defined()) {
      position.pos_ids.emplace_back(kMainLabel, positions);
      position.advance.push_back(advance);
    }
    Tensor logits;
    auto* attention = dynamic_cast<AttentionResource*>(rig_.resources().at("attn"));
    auto* rope = dynamic_cast<PositionResource*>(rig_.resources().at("rope"));
    Stream& stream = context_.stream;
    rig_.run(stream, step, [&](const AttentionContext& where) {
      positions_seen_ = rope->pos_ids(where).copy();
      Tensor rows = model_.embed_text(stream, ids, DType::kF32);
      place_rows(stream, vision_rows, placeholders, rows);
      PagedText paged(where, *attention);
      const Tensor normed =
          model_.prefill(stream, rows, model_.rotary(stream, positions_seen_), paged, true);
      logits = model_.logits(stream, normed).copy();
    });
    return logits;
  }

  // [3, tokens] of the last step.
  const Tensor& positions_seen() const { return positions_seen_; }

 private:
  static ResourceRig::Specs specs_of(const TransformerConfig& config) {
    return {{"kv",
             KVSpec{.num_layers = config.num_hidden_layers,
                    .num_kv_heads = config.num_key_value_heads,
                    .head_dim = config.head_dim,
                    .page_size = 16,
                    .max_num_pages = 128,
                    .dtype = DType::kF32}},
            {"attn", AttentionSpec{.kv = "kv"}},
            {"rope", PositionSpec{.kv = "kv", .num_axes = 3, .use_rope = false}}};
  }

  const Transformer& model_;
  RunContext& context_;
  ResourceRig rig_;
  Tensor positions_seen_;
};

std::vector<int32_t> ints_of(const Tensor& tensor) {
  std::vector<int32_t> out;
  for (const int64_t value : tensor.to_ints()) {
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

// [3, n] of any integer type as i32.
Tensor as_i32(const Tensor& tensor) {
  return Tensor::from(ints_of(tensor), tensor.shape());
}

Tensor stacked(const std::vector<Tensor>& rows) {
  std::vector<float> values;
  for (const Tensor& row : rows) {
    const std::vector<float> own = row.to_floats();
    values.insert(values.end(), own.begin(), own.end());
  }
  const auto count = static_cast<int64_t>(rows.size());
  return Tensor::from(values, {count, static_cast<int64_t>(values.size()) / count});
}

// The rows that pictures give must be the recorded ones, made by the tower of the same checkpoint.
void check_vision_rows(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  if (!golden.has("in.patches")) {
    return;
  }
  const auto encoder = load_vision(weights_folder(golden) + "/../vision_encoder", context);
  std::vector<Tensor> rows;
  for (const char* name : {"", "video_"}) {
    const std::string patches = str_cat("in.", name, "patches");
    if (golden.has(patches)) {
      const PatchGrid grid = grid_of(golden.tensor(str_cat("in.", name, "grid")));
      const Tensor own = encoder->project(
          context.stream, encoder->tower(context.stream, golden.tensor(patches), grid));
      for (int64_t row = 0; row < own.dim(0); ++row) {
        rows.push_back(own.select(0, row).copy());
      }
    }
  }
  const Comparison comparison =
      compare(stacked(rows), golden.tensor("in.vision_tokens"), {.atol = 1e-4, .rtol = 1e-5});
  if (!comparison.passed) {
    result.fail(str_cat("in.vision_tokens: ", comparison.to_string()));
  }
}

void run_reasoner(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const std::string folder = weights_folder(golden);
  Transformer model(TransformerConfig::parse(read_json_file(folder + "/config.json"), folder),
                    true);
  model.load(*open_checkpoint(folder), {context.pool});
  check_vision_rows(golden, context, result);

  const std::vector<int32_t> ids = ints_of(golden.tensor("in.input_ids"));
  const Tensor positions = as_i32(golden.tensor("in.positions"));
  const auto num_tokens = static_cast<int64_t>(ids.size());
  std::vector<int32_t> placeholders;
  Tensor vision;
  if (golden.has("in.vision_tokens")) {
    vision = golden.tensor("in.vision_tokens");
    placeholders = ints_of(golden.tensor("in.placeholder_index"));
  }
  // The whole prompt at once, and in pieces that cut through pictures.
  for (const int64_t piece : {num_tokens, int64_t{7}}) {
    Conversation conversation(model, context);
    std::vector<Tensor> logits;
    int64_t cursor = 0;  // next position
    for (int64_t begin = 0; begin < num_tokens; begin += piece) {
      const int64_t end = std::min(begin + piece, num_tokens);
      const int64_t next = next_position(positions, end);
      const auto [first, places] = placeholders_between(placeholders, begin, end);
      const Tensor rows = conversation.append(
          Tensor::from(
              std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
              {end - begin}),
          positions.slice(1, begin, end).copy(),
          next - cursor,
          places,
          places.empty() ? Tensor()
                         : vision.slice(0, first, first + static_cast<int64_t>(places.size())));
      cursor = next;
      for (int64_t row = 0; row < rows.dim(0); ++row) {
        logits.push_back(rows.select(0, row));
      }
    }
    const std::string variant = piece == num_tokens ? "whole" : str_cat("in pieces of ", piece);
    result.expect("out.logits", stacked(logits), variant);

    std::vector<int64_t> greedy;
    std::vector<Tensor> greedy_logits;
    Tensor decode_positions =
        Tensor::zeros(golden.tensor("out.decode_positions").shape(), DType::kI32);
    Tensor last = logits.back();
    const int64_t count = golden.tensor("out.greedy_ids").dim(0);
    for (int64_t step = 0; step < count; ++step) {
      const std::vector<float> values = last.to_floats();
      greedy_logits.push_back(last);
      greedy.push_back(std::ranges::max_element(values) - values.begin());
      const auto token = static_cast<int32_t>(greedy.back());
      const Tensor next =
          conversation.append(Tensor::from(std::span(&token, 1), {1}), {}, 0, {}, {});
      last = next.select(0, 0);
      for (int64_t axis = 0; axis < 3; ++axis) {
        decode_positions.data<int32_t>()[axis * count + step] =
            conversation.positions_seen().data<int32_t>()[axis];
      }
    }
    result.expect("out.greedy_ids", Tensor::from(greedy, {count}), variant);
    result.expect("out.greedy_logits", stacked(greedy_logits), variant);
    result.expect("out.decode_positions", decode_positions, variant);
  }
}

void run_sampler(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const Tensor logits = golden.tensor("in.logits");
  const Tensor seen = golden.tensor("in.seen");
  const int64_t num_rows = logits.dim(0);
  const int64_t vocab = logits.dim(1);
  const int64_t words = (vocab + 31) / 32;
  Tensor bits = Tensor::zeros({num_rows, words}, DType::kI32);
  const std::vector<int64_t> marks = seen.to_ints();
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t token = 0; token < vocab; ++token) {
      if (marks[static_cast<size_t>(row * vocab + token)] != 0) {
        bits.data<int32_t>()[row * words + token / 32] |= static_cast<int32_t>(1U << (token % 32));
      }
    }
  }
  for (const auto& [name, config] : golden.config.get_object()) {
    if (!config.is_object()) {
      continue;
    }
    const auto number = [&config = config](const char* key) {  // clang 14 wants a name of its own
      return static_cast<float>(config.at(key).get_double());
    };
    SamplingRow row;
    row.temperature = number("temperature");
    row.top_k = static_cast<int32_t>(number("top_k"));
    row.top_p = number("top_p");
    row.repetition_penalty = number("repetition_penalty");
    std::vector<SamplingRow> rows(static_cast<size_t>(num_rows), row);
    const Tensor packed = Tensor::borrow(
        rows.data(), {num_rows, static_cast<int64_t>(sizeof(SamplingRow))}, DType::kU8);
    Tensor probs = context.stream.empty({num_rows, vocab}, DType::kF32);
    Tensor tokens = context.stream.empty({num_rows}, DType::kI32);
    ops::sample(context.stream, logits, packed, bits, Tensor(), Tensor(), tokens, probs);
    context.stream.synchronize();
    result.expect(str_cat("out.", name), probs);
  }
}

}  // namespace

void add_cosmos3_reasoner_kinds(Registry& registry) {
  registry.add_prefix("smart-resize", run_smart_resize);
  registry.add_prefix("frame-sampling", run_frame_sampling);
  registry.add_prefix("image-preprocess", run_image_preprocess);
  registry.add_prefix("vision-", run_vision);
  registry.add_prefix("reasoner-", run_reasoner);
  registry.add_prefix("sampler", run_sampler);
}

}  // namespace mstar::golden
