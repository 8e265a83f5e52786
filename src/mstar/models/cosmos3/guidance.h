// Classifier-free guidance: two branches that differ in their text alone, joined per step.
#pragma once

#include <array>

#include "mstar/models/cosmos3/elementwise.h"
#include "mstar/models/cosmos3/transformer.h"

namespace mstar::cosmos3 {

struct Guidance {
  float scale = 1.0F;  // 1: the unconditional branch is never computed
  // Time steps, both ends included, at which guidance acts; outside, the conditional branch alone.
  std::array<double, 2> interval{0.0, 1e9};

  bool enabled() const { return scale != 1.0F; }

  bool active_at(float timestep) const {
    return enabled() && timestep >= interval[0] && timestep <= interval[1];
  }
};

// velocity := uncond + scale * (velocity - uncond), every part that is there.
inline void apply_guidance(Stream& stream,
                           float scale,
                           const GenState& uncond,
                           GenState& velocity) {
  const auto join = [&](const Tensor& other, Tensor& own) {
    if (own.defined()) {
      combine(stream, {{1.0F - scale, other}, {scale, own}}, own);
    }
  };
  join(uncond.vision, velocity.vision);
  join(uncond.sound, velocity.sound);
  join(uncond.actions, velocity.actions);
}

}  // namespace mstar::cosmos3
