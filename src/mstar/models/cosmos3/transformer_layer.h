// One layer of the dual-pathway transformer: the understanding tower (text) and the generation
// tower (media) with separate weights, meeting only where generation reads the text's keys and
// values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/components/linear.h"
#include "mstar/components/norm.h"
#include "mstar/models/cosmos3/config.h"

namespace mstar::cosmos3 {

// Who computes attention and keeps the text's keys and values: the engine's resources, or
// DirectAttention. Called once a layer and tower.
//   q, out [tokens, num_heads, head_dim]; k, v [tokens, num_kv_heads, head_dim], rotated
class TowerAttention {
 public:
  virtual ~TowerAttention() = default;

  // Whether `k_for_gen` is wanted; else it is `k`: a reasoner's text is read by text alone.
  virtual bool keeps_for_gen() const { return true; }

  // Text rows, causal among themselves through `k`; `k_for_gen` and `v` are kept for generation.
  // `out` undefined: nobody reads the result (the last layer of a generator's prefill).
  virtual void attend_und(Stream& stream,
                          int32_t layer,
                          const Tensor& q,
                          const Tensor& k,
                          const Tensor& k_for_gen,
                          const Tensor& v,
                          Tensor& out) = 0;

  // Media rows over [kept text | themselves], without a mask.
  virtual void attend_gen(Stream& stream,
                          int32_t layer,
                          const Tensor& q,
                          const Tensor& k,
                          const Tensor& v,
                          Tensor& out) = 0;
};

// One prompt and one sequence, the text's keys and values kept here. For the recorded cases and
// for use without an engine. One thread.
class DirectAttention : public TowerAttention {
 public:
  explicit DirectAttention(int64_t num_layers) : kept_(static_cast<size_t>(num_layers)) {}

  void attend_und(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& k_for_gen,
                  const Tensor& v,
                  Tensor& out) override;
  void attend_gen(Stream& stream,
                  int32_t layer,
                  const Tensor& q,
                  const Tensor& k,
                  const Tensor& v,
                  Tensor& out) override;

  const Tensor& kept_k(int32_t layer) const { return kept_[static_cast<size_t>(layer)].k; }

  const Tensor& kept_v(int32_t layer) const { return kept_[static_cast<size_t>(layer)].v; }

 private:
  struct Kept {
    Tensor k;
    Tensor v;
  };

  std::vector<Kept> kept_;
};

// Rotation tables of one step's rows.
struct RotaryTable {
  Tensor cos;  // [tokens, head_dim / 2] f32
  Tensor sin;
};

// One tower's half of a layer.
struct TowerLayer {
  explicit TowerLayer(const TransformerConfig& config);

  // Rows [tokens, hidden_size] after the MLP.
  Tensor mlp(Stream& stream, const TransformerConfig& config, const Tensor& x) const;

  RMSNorm input_norm;
  RMSNorm post_norm;
  Linear q;
  Linear k;
  Linear v;
  Linear out;
  std::unique_ptr<RMSNorm> q_norm;  // null: none
  std::unique_ptr<RMSNorm> k_norm;
  std::unique_ptr<RMSNorm> k_norm_for_gen;
  std::unique_ptr<Linear> gate;  // null: no gate
  Linear up;
  Linear down;
};

// Both halves, under the checkpoint's names. const after finalize().
class DecoderLayer : public Module {
 public:
  DecoderLayer(const TransformerConfig& config, int32_t index);

  // rows [tokens, hidden_size] -> the same. `keep_only`: computes keys and values and hands them
  // on, but not the rows (undefined then).
  Tensor forward_und(Stream& stream,
                     const Tensor& rows,
                     const RotaryTable& rotary,
                     TowerAttention& attention,
                     bool keep_only) const;

  Tensor forward_gen(Stream& stream,
                     const Tensor& rows,
                     const RotaryTable& rotary,
                     TowerAttention& attention) const;

 private:
  Tensor heads(Stream& stream, const Linear& projection, const Tensor& rows, int64_t count) const;
  void rotate(Stream& stream, const RMSNorm* norm, const RotaryTable& rotary, Tensor& x) const;
  Tensor finish(Stream& stream,
                const TowerLayer& tower,
                const Tensor& rows,
                const Tensor& attended) const;

  TransformerConfig config_;
  int32_t index_;
  TowerLayer und_;
  TowerLayer gen_;
};

}  // namespace mstar::cosmos3
