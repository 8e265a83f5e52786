// What the files of the "dit" node share, and nobody else reads.
#pragma once

#include <any>
#include <string_view>

#include "mstar/models/cosmos3/dit_submodule.h"

namespace mstar::cosmos3 {

inline constexpr std::string_view kDenoiser = "denoiser";  // PerRequestState
inline constexpr std::string_view kStream = "stream";      // NodeInputs: Stream*

// Outputs of a captured step until postprocess.
inline constexpr std::string_view kCondVelocity = "cond_velocity";
inline constexpr std::string_view kUncondVelocity = "uncond_velocity";

// The engine's resources as a layer's attention. Rows of a step: all conditional ones, then the
// unconditional ones.
class EngineAttention : public TowerAttention {
 public:
  EngineAttention(const StepContext& step,
                  LabelId plan_label,
                  int64_t num_cond,
                  KvCache& kv,
                  AttentionResource& text,
                  AttentionResource& dense)
      : step_(step),
        plan_label_(plan_label),
        num_cond_(num_cond),
        kv_(kv),
        text_(text),
        dense_(dense) {}

  void attend_und(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& k_for_gen,
                  const Tensor& v,
                  Tensor& out) override {
    kv_.write_kv(stream, {&step_, plan_label_, layer}, k_for_gen, v);
    if (!out.defined()) {
      return;
    }
    const auto attend = [&](LabelId label, int64_t begin, int64_t end) {
      if (begin < end) {
        Tensor part = out.slice(0, begin, end);
        text_.attend(stream,
                     {&step_, label, layer},
                     q.slice(0, begin, end),
                     k.slice(0, begin, end),
                     v.slice(0, begin, end),
                     part);
      }
    };
    attend(kCondLabel, 0, num_cond_);
    attend(kUncondLabel, num_cond_, q.dim(0));
  }

  void attend_gen(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& v,
                  Tensor& out) override {
    dense_.attend(stream, {&step_, plan_label_, layer}, q, k, v, out);
  }

 private:
  const StepContext& step_;
  LabelId plan_label_;
  int64_t num_cond_;
  KvCache& kv_;
  AttentionResource& text_;
  AttentionResource& dense_;
};

inline const GenStepInfo& step_info(const NodeInputs& inputs) {
  return *std::any_cast<GenStepInfo>(&inputs.resource_step_info);
}

}  // namespace mstar::cosmos3
