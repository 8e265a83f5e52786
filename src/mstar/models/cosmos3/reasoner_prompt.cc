#include "mstar/models/cosmos3/reasoner_prompt.h"

#include <algorithm>
#include <cstdio>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/jinja/marked_text.h"

namespace mstar::cosmos3 {

namespace {

// Whether the template wrote every byte of [begin, end).
bool is_template_text(const MarkedText& text, size_t begin, size_t end) {
  return std::ranges::none_of(
      text.user, [&](const TextRange& range) { return range.begin < end && begin < range.end; });
}

// "<1.5 seconds>"
std::string time_mark(double seconds) {
  char mark[64];
  std::snprintf(mark, sizeof(mark), "<%.1f seconds>", seconds);
  return mark;
}

[[noreturn]] void refuse_count(std::string_view what, size_t shown, size_t sent) {
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[request] the chat template shows ",
                      shown,
                      " ",
                      what,
                      ", the messages have ",
                      sent,
                      "; put media into user messages"));
}

}  // namespace

Tensor prompt_positions(int64_t num_tokens, std::span<const PlaceholderRun> runs) {
  Tensor out = Tensor::empty({3, num_tokens}, DType::kI32);
  int32_t* time = out.data<int32_t>();
  int32_t* height = time + num_tokens;
  int32_t* width = height + num_tokens;
  int32_t next = 0;
  int64_t token = 0;
  const auto count_text = [&](int64_t end) {
    for (; token < end; ++token, ++next) {
      time[token] = height[token] = width[token] = next;
    }
  };
  for (const PlaceholderRun& run : runs) {
    count_text(run.begin);
    for (int64_t i = 0; i < run.size(); ++i, ++token) {
      time[token] = next;
      height[token] = next + static_cast<int32_t>(i / run.columns);
      width[token] = next + static_cast<int32_t>(i % run.columns);
    }
    next += static_cast<int32_t>(std::max(run.rows, run.columns));
  }
  count_text(num_tokens);
  return out;
}

int64_t next_position(const Tensor& positions, int64_t end) {
  int64_t largest = -1;
  for (int64_t axis = 0; axis < positions.dim(0); ++axis) {
    const int32_t* row = positions.data<int32_t>() + axis * positions.stride(0);
    for (int64_t token = 0; token < end; ++token) {
      largest = std::max<int64_t>(largest, row[token]);
    }
  }
  return largest + 1;
}

std::pair<int64_t, std::vector<int32_t>> placeholders_between(std::span<const int32_t> placeholders,
                                                              int64_t begin,
                                                              int64_t end) {
  const auto first = std::ranges::lower_bound(placeholders, static_cast<int32_t>(begin));
  const auto last = std::ranges::lower_bound(placeholders, static_cast<int32_t>(end));
  std::pair<int64_t, std::vector<int32_t>> out{first - placeholders.begin(), {}};
  for (auto place = first; place != last; ++place) {
    out.second.push_back(*place - static_cast<int32_t>(begin));
  }
  return out;
}

ReasonerPromptEncoder::ReasonerPromptEncoder(const TextFrontEnd& text,
                                             const ReasonerConfig& config,
                                             const std::string& where)
    : vision_start_(text.tokenizer->token(config.vision_start_token_id)),
      vision_end_(text.tokenizer->token(config.vision_end_token_id)),
      video_pad_(text.tokenizer->token(config.video_token_id)),
      image_token_id_(config.image_token_id),
      video_token_id_(config.video_token_id),
      merge_size_(config.vision.spatial_merge_size) {
  if (text.chat_template == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", where, "] the checkpoint has no chat template"));
  }
  for (const int32_t id : {config.image_token_id,
                           config.video_token_id,
                           config.vision_start_token_id,
                           config.vision_end_token_id}) {
    if (!text.tokenizer->is_special(id)) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[",
                          where,
                          "] config.json says that token ",
                          id,
                          " stands for vision, in the tokenizer it is no special token"));
    }
  }
}

ReasonerPrompt ReasonerPromptEncoder::encode(const TextFrontEnd& text,
                                             const std::vector<ChatMessage>& messages,
                                             const Json& variables,
                                             std::span<const VisionItem> items) const {
  const MarkedText rendered = text.render_chat(messages, variables);
  // Every clip's mark becomes one mark a frame, each behind its time.
  const std::string clip_mark = str_cat(vision_start_, video_pad_, vision_end_);
  const auto is_clip = [](const VisionItem& item) { return item.is_clip(); };
  const auto num_clips = static_cast<size_t>(std::ranges::count_if(items, is_clip));
  MarkedText full;
  size_t done = 0;
  size_t clip = 0;  // index in `items`
  size_t num_shown = 0;
  for (size_t at = rendered.text.find(clip_mark); at != std::string::npos;
       at = rendered.text.find(clip_mark, at + 1)) {
    if (!is_template_text(rendered, at, at + clip_mark.size())) {
      continue;
    }
    while (clip < items.size() && !items[clip].is_clip()) {
      ++clip;
    }
    ++num_shown;
    if (clip == items.size()) {
      continue;  // too many: counted, then refused
    }
    jinja::append(full, jinja::cut(rendered, done, at));
    for (const double seconds : items[clip].seconds) {
      jinja::append(full, str_cat(time_mark(seconds), clip_mark));
    }
    done = at + clip_mark.size();
    ++clip;
  }
  if (num_shown != num_clips) {
    refuse_count("videos", num_shown, num_clips);
  }
  jinja::append(full, jinja::cut(rendered, done, rendered.text.size()));

  // Every mark becomes as many tokens as its frame has rows.
  const std::vector<int32_t> marked = text.tokenizer->encode(full);
  ReasonerPrompt prompt;
  size_t item = 0;
  int64_t frame = 0;
  size_t num_marks = 0;
  size_t num_wanted = 0;
  for (const VisionItem& one : items) {
    num_wanted += static_cast<size_t>(one.grid.frames);
  }
  for (const int32_t id : marked) {
    if (id != image_token_id_ && id != video_token_id_) {
      prompt.ids.push_back(id);
      continue;
    }
    ++num_marks;
    if (item == items.size() || items[item].is_clip() != (id == video_token_id_)) {
      continue;  // refused below: the counts cannot agree, or the order does not
    }
    const PatchGrid& grid = items[item].grid;
    prompt.runs.push_back({.begin = static_cast<int64_t>(prompt.ids.size()),
                           .rows = grid.rows / merge_size_,
                           .columns = grid.columns / merge_size_});
    prompt.ids.insert(prompt.ids.end(), static_cast<size_t>(prompt.runs.back().size()), id);
    if (++frame == grid.frames) {
      ++item;
      frame = 0;
    }
  }
  if (num_marks != num_wanted || item != items.size()) {
    refuse_count("pictures and frames", num_marks, num_wanted);
  }
  return prompt;
}

}  // namespace mstar::cosmos3
