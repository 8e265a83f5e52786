#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/resources/resource.h"

namespace mstar {

// What a layer is told: the step whose plans it reads, the plan label (one stream of every
// request, or a combination), and its own index. Explicit, so that two nodes can share resources.
struct AttentionContext {
  const StepContext* step = nullptr;
  LabelId label = kMainLabel;
  int32_t layer = 0;

  AttentionContext at_layer(int32_t index) const { return {step, label, index}; }

  AttentionContext at_label(LabelId other) const { return {step, other, layer}; }
};

// Attention as a layer sees it. attend() is called by the executor, once per layer, plan label and
// step, after stage(). Captured like any op.
class AttentionResource : public Resource {
 public:
  using Resource::Resource;

  // Writes k and v where the kind keeps them, then attends.
  //   q, out  [tokens, num_heads, head_dim] f32 or bf16, rows in the packing order of the label
  //   k, v    [tokens, num_kv_heads, head_dim] of the same rows; undefined when the step only
  //           reads (kCross after the context was written)
  virtual void attend(Stream& stream,
                      const AttentionContext& context,
                      const Tensor& q,
                      const Tensor& k,
                      const Tensor& v,
                      Tensor& out) = 0;

  // kCross: keys and values of the context, [context tokens, num_kv_heads, head_dim], packed in
  // the order of the KV step's segments; only in the step that grows the context stream
  // (has_context_growth()). A check for other kinds.
  virtual void write_context(Stream& stream,
                             const AttentionContext& context,
                             const Tensor& k,
                             const Tensor& v);

  virtual bool has_context_growth(const AttentionContext& context) const;

  // Query rows of the label in this step: [num_seqs + 1] i32.
  virtual const Tensor& qo_indptr(const AttentionContext& context) const = 0;

  // Rows of `hidden` [tokens, dim] that end a segment -> out [num_seqs, dim]: what a language
  // model's head reads.
  void select_last_hidden(Stream& stream,
                          const AttentionContext& context,
                          const Tensor& hidden,
                          Tensor& out) const;

  // [num_seqs] i32 index of every segment's last row, 0 for a segment without rows.
  virtual const Tensor& last_rows(const AttentionContext& context) const = 0;
};

// Positions as a layer sees them.
class PositionResource : public Resource {
 public:
  using Resource::Resource;

  // Rotates q and k in place by the label's tables of this step. Executor.
  //   q [tokens, num_heads, head_dim], k [tokens, num_kv_heads, head_dim]; k may be undefined
  virtual void apply_qk(Stream& stream,
                        const AttentionContext& context,
                        Tensor& q,
                        Tensor& k) const = 0;

  // [tokens] or [3, tokens] i32 or f32: indices into learned positions, among others. Under a
  // lease as many tokens as its bucket has; those behind the real ones are 0.
  virtual const Tensor& pos_ids(const AttentionContext& context) const = 0;
};

// The cursor form of the same: bound once per step, told the layer, called by it.
//   attn.bind_step(context, label);
//   attn.set_layer_idx(i);
//   attn(stream, q, k, v, out);
// Holds no state of the resources. Thread-compatible: one per layer stack and executor.
class AttentionCallable {
 public:
  AttentionCallable(AttentionResource& attention, PositionResource* positions)
      : attention_(&attention), positions_(positions) {}

  void bind_step(const StepContext& step, LabelId label) { context_ = {&step, label, 0}; }

  void set_layer_idx(int32_t index) { context_.layer = index; }

  const AttentionContext& context() const { return context_; }

  void apply_qk(Stream& stream, Tensor& q, Tensor& k) const;

  void operator()(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out) {
    attention_->attend(stream, context_, q, k, v, out);
  }

 private:
  AttentionResource* attention_;
  PositionResource* positions_;  // null: no rotation
  AttentionContext context_;
};

}  // namespace mstar
