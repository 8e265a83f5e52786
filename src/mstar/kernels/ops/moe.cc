#include "mstar/kernels/ops/moe.h"

#include "mstar/kernels/ref/bridge.h"
#include "mstar/kernels/ref/moe.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::ops {

using ref::PlainTensor;

void route_top_k(Stream& stream,
                 const Tensor& logits,
                 bool norm_topk_prob,
                 Tensor& weights,
                 Tensor& ids) {
  struct Params {
    PlainTensor logits, weights, ids;
    bool norm_topk_prob;
  };

  const Params params{PlainTensor(logits), PlainTensor(weights), PlainTensor(ids), norm_topk_prob};
  as_cpu(stream).enqueue("route_top_k", 1, params, [](const Params& p, int) {
    Tensor weight = p.weights.tensor();
    Tensor expert = p.ids.tensor();
    ref::route_top_k(p.logits.tensor(), p.norm_topk_prob, weight, expert);
  });
}

void sort_by_expert(Stream& stream,
                    const Tensor& ids,
                    Tensor& indptr,
                    Tensor& rows,
                    Tensor& slots) {
  struct Params {
    PlainTensor ids, indptr, rows, slots;
  };

  const Params params{PlainTensor(ids), PlainTensor(indptr), PlainTensor(rows), PlainTensor(slots)};
  as_cpu(stream).enqueue("sort_by_expert", 1, params, [](const Params& p, int) {
    Tensor begin = p.indptr.tensor();
    Tensor sorted = p.rows.tensor();
    Tensor slot = p.slots.tensor();
    ref::sort_by_expert(p.ids.tensor(), begin, sorted, slot);
  });
}

void combine_experts(Stream& stream,
                     const Tensor& x,
                     const Tensor& slots,
                     const Tensor& weights,
                     Tensor& out) {
  struct Params {
    PlainTensor x, slots, weights, out;
  };

  const Params params{PlainTensor(x), PlainTensor(slots), PlainTensor(weights), PlainTensor(out)};
  as_cpu(stream).enqueue("combine_experts", 1, params, [](const Params& p, int) {
    Tensor sum = p.out.tensor();
    ref::combine_experts(p.x.tensor(), p.slots.tensor(), p.weights.tensor(), sum);
  });
}

}  // namespace mstar::ops
