#pragma once

#include <array>
#include <cstdint>

#include "mstar/tensor/stream.h"

namespace mstar {

// How rotation angles come from positions. Host data, decided once per model.
struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kLlama31 };
  enum class Layout : uint8_t { kOneAxis, kSectioned, kInterleaved };

  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // leading dims that rotate; 0 means head_dim
  float theta = 10000.0F;
  Scaling scaling = Scaling::kNone;
  float scale = 1.0F;            // positions (linear) or low frequencies (Llama 3.1) divided by it
  float low_freq_factor = 1.0F;  // Llama 3.1
  float high_freq_factor = 1.0F;
  int64_t old_context_len = 8192;
  // false: pairs are (i, i + rotary_dim / 2) (Hugging Face); true: (2i, 2i + 1) (GPT-J, GGUF llama)
  bool interleave = false;
  // Three axes (time, height, width): frequencies per axis, their sum is rotary_dim / 2.
  // kSectioned (Qwen2-VL): the first section[0] frequencies follow time, then height, then width.
  // kInterleaved (Qwen3-VL, Cosmos3): frequency i follows height for i = 1, 4, … < 3 section[1],
  // width for i = 2, 5, … < 3 section[2], else time.
  Layout layout = Layout::kOneAxis;
  std::array<int32_t, 3> section{};
};

// The frequencies, [rotary_dim / 2] f32: 1 / theta^(2i / rotary_dim) with exponent, power and
// reciprocal each rounded to f32, then scaled.
Tensor rope_inv_freq(const RopeConfig& config);

namespace ops {

// Rotation tables for one step, once for all layers: the angle is one f32 product
// position * inv_freq; cos and sin are f32.
//   positions  [tokens] or [3, tokens], i32, i64 or f32; read when the op runs
//   cos, sin   [tokens, rotary_dim / 2] f32
void rope_table(Stream& stream,
                const Tensor& positions,
                const Tensor& inv_freq,
                const RopeConfig& config,
                Tensor& cos,
                Tensor& sin);

// Rotates the leading rotary_dim of each head in place.
//   x  [tokens, num_heads, head_dim] f32 or bf16; the last two dims dense, any token stride
// For bf16, cos and sin are first rounded to bf16 when `round_table` is set, and the two products
// and the sum are rounded like bf16 tensor ops (Hugging Face's arithmetic); otherwise f32 inside.
void apply_rope(Stream& stream,
                const Tensor& cos,
                const Tensor& sin,
                const RopeConfig& config,
                bool round_table,
                Tensor& x);

}  // namespace ops
}  // namespace mstar
