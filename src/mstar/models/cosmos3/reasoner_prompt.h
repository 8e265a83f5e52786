// A conversation with pictures and clips as the reasoner reads it: token ids, the places that
// vision rows take, and positions on three axes. Pure functions and an immutable encoder, any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mstar/engine/model.h"
#include "mstar/models/common/text_front_end.h"
#include "mstar/models/cosmos3/reasoner_config.h"
#include "mstar/models/cosmos3/vision_input.h"

namespace mstar::cosmos3 {

// One picture or clip, cut into patches.
struct VisionItem {
  PatchGrid grid;
  std::vector<double> seconds;  // of a clip's frames, from its start; empty: a picture
  Tensor patches;               // [grid.num_patches(), patch_dim] u8

  bool is_clip() const { return !seconds.empty(); }
};

// A run of tokens that one frame's rows replace, `rows` x `columns` of them in raster order.
struct PlaceholderRun {
  int64_t begin = 0;  // index of its first token
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t size() const { return rows * columns; }
};

struct ReasonerPrompt {
  std::vector<int32_t> ids;
  std::vector<PlaceholderRun> runs;  // in order; empty: text alone
};

// Positions [3, num_tokens] i32 (time, height, width). Text counts on along all axes; the tokens of
// a frame share its time, which is the count where it stands, and count rows and columns from it;
// the text behind goes on after the longer side.
Tensor prompt_positions(int64_t num_tokens, std::span<const PlaceholderRun> runs);

// Position of the token behind the first `end` ones: one more than the largest.
int64_t next_position(const Tensor& positions, int64_t end);

// Of ascending token indices those in [begin, end), counted from `begin`, and how many come before.
std::pair<int64_t, std::vector<int32_t>> placeholders_between(std::span<const int32_t> placeholders,
                                                              int64_t begin,
                                                              int64_t end);

class ReasonerPromptEncoder {
 public:
  ReasonerPromptEncoder() = default;

  // Throws Error(kInvalidArgument) when the tokenizer's vision tokens are not the configured ones
  // or there is no chat template. `where` names the checkpoint.
  ReasonerPromptEncoder(const TextFrontEnd& text,
                        const ReasonerConfig& config,
                        const std::string& where);

  // `items` in the order in which the messages' parts refer to media. Only marks that the template
  // wrote stand for media: what a client types stays text. Throws Error(kInvalidArgument) when the
  // template shows other media than the messages have.
  ReasonerPrompt encode(const TextFrontEnd& text,
                        const std::vector<ChatMessage>& messages,
                        const Json& variables,
                        std::span<const VisionItem> items) const;

 private:
  std::string vision_start_;
  std::string vision_end_;
  std::string video_pad_;
  int32_t image_token_id_ = 0;
  int32_t video_token_id_ = 0;
  int64_t merge_size_ = 1;
};

}  // namespace mstar::cosmos3
