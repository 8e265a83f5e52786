#include "mstar/models/cosmos3/memory_estimate.h"

#include <algorithm>
#include <string_view>

#include "mstar/checkpoint/checkpoint_reader.h"

namespace mstar::cosmos3 {

namespace {

// Matrices and filters of f32 become bf16 with bf16 activations.
int64_t loaded_bytes(const TensorInfo& tensor, DType activation_dtype) {
  const bool narrowed =
      activation_dtype == DType::kBF16 && tensor.dtype == DType::kF32 && tensor.shape.size() > 1;
  return static_cast<int64_t>(tensor.size_bytes) / (narrowed ? 2 : 1);
}

}  // namespace

int64_t part_bytes(const std::string& folder,
                   std::initializer_list<std::string_view> prefixes,
                   DType activation_dtype) {
  int64_t total = 0;
  const auto checkpoint = open_checkpoint(folder);
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    const bool counts = std::ranges::any_of(prefixes, [&](std::string_view prefix) {
      return std::string_view(tensor.name).starts_with(prefix);
    });
    total += counts ? loaded_bytes(tensor, activation_dtype) : 0;
  }
  return total;
}

int64_t transformer_bytes(const std::string& folder,
                          bool with_head,
                          bool int8,
                          DType activation_dtype) {
  int64_t total = 0;
  const auto checkpoint = open_checkpoint(folder);
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    if (tensor.name == "lm_head.weight" && !with_head) {
      continue;
    }
    const bool quantized =
        int8 && tensor.shape.size() == 2 && std::string_view(tensor.name).starts_with("layers.");
    total += quantized ? tensor.shape.num_elements() + tensor.shape[0] * 4
                       : loaded_bytes(tensor, activation_dtype);
  }
  return total;
}

int64_t step_bytes(const TransformerConfig& config,
                   const VaeConfig& vae,
                   const MadeSize& size,
                   DType dtype) {
  const int64_t cell = vae.scale_factor_spatial * config.latent_patch_size;
  const int64_t tokens = vae.latent_frames(size.num_frames) * ((size.height + cell - 1) / cell) *
                         ((size.width + cell - 1) / cell);
  const int64_t query = config.num_attention_heads * config.head_dim;
  const int64_t key = config.num_key_value_heads * config.head_dim;
  // Rows, normed rows and their sum; then queries, keys, values and what was attended to, or what
  // the MLP has inside.
  const int64_t attention = 2 * query + 2 * key;
  const int64_t mlp = (config.gated_mlp ? 2 : 1) * config.intermediate_size;
  return 2 * tokens * (3 * config.hidden_size + std::max(attention, mlp)) * element_bytes(dtype);
}

int64_t decode_bytes(const VaeConfig& vae, const MadeSize& size, DType dtype) {
  const size_t num_blocks = vae.dim_mult.size();
  int64_t pixels = size.width / vae.scale_factor_spatial * (size.height / vae.scale_factor_spatial);
  int64_t frames = 1;  // of a chunk behind the first
  int64_t in = vae.decoder_base_dim * vae.dim_mult.back();
  int64_t widest = 0;
  int64_t cached = 0;
  for (size_t index = 0; index < num_blocks; ++index) {
    const int64_t out = vae.decoder_base_dim * vae.dim_mult[num_blocks - 1 - index];
    const int64_t convolutions = 2 * (vae.num_res_blocks + 1);
    cached += 2 * pixels * (in + (convolutions - 1) * out);
    // A block's input stays for its shortcut; inside, a layer's input, normed input and result.
    widest = std::max(widest, frames * pixels * (2 * in + 2 * std::max(in, out)));
    if (index + 1 < num_blocks) {
      frames *= vae.temperal_downsample[num_blocks - 2 - index] ? 2 : 1;
      pixels *= 4;
      widest = std::max(widest, frames * pixels * out + frames * pixels / 4 * 2 * in);
    }
    in = out;
  }
  if (size.num_frames == 1) {
    widest /= frames;  // the first chunk alone
  }
  constexpr int64_t kBytesOfColour = 5;  // f32, then a byte
  const int64_t made = size.width * size.height * size.num_frames * 3 * kBytesOfColour;
  return (widest + cached) * element_bytes(dtype) + made;
}

}  // namespace mstar::cosmos3
