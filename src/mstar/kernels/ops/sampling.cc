#include "mstar/kernels/ops/sampling.h"

#include "mstar/kernels/ref/bridge.h"
#include "mstar/kernels/ref/sampling.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

using ref::PlainTensor;

float philox_uniform(uint64_t seed, uint64_t stream, uint64_t step) {
  return static_cast<float>(ref::philox(seed, step, stream)[0] >> 8) * 0x1p-24F;
}

namespace ops {

void softmax(Stream& stream, const Tensor& x, Tensor& out) {
  struct Params {
    PlainTensor x, out;
  };

  as_cpu(stream).enqueue(
      "softmax", 1, Params{PlainTensor(x), PlainTensor(out)}, [](const Params& p, int) {
        Tensor to = p.out.tensor();
        ref::softmax(p.x.tensor(), to);
      });
}

void top_k(Stream& stream, const Tensor& x, Tensor& values, Tensor& indices) {
  struct Params {
    PlainTensor x, values, indices;
  };

  as_cpu(stream).enqueue("top_k",
                         1,
                         Params{PlainTensor(x), PlainTensor(values), PlainTensor(indices)},
                         [](const Params& p, int) {
                           Tensor largest = p.values.tensor();
                           Tensor places = p.indices.tensor();
                           ref::top_k(p.x.tensor(), largest, places);
                         });
}

void argmax(Stream& stream, const Tensor& x, Tensor& indices) {
  struct Params {
    PlainTensor x, indices;
  };

  as_cpu(stream).enqueue(
      "argmax", 1, Params{PlainTensor(x), PlainTensor(indices)}, [](const Params& p, int) {
        Tensor places = p.indices.tensor();
        ref::argmax(p.x.tensor(), places);
      });
}

void sample(Stream& stream,
            const Tensor& logits,
            const Tensor& rows,
            const Tensor& seen,
            const Tensor& counts,
            const Tensor& logit_bias,
            Tensor& tokens,
            Tensor& probs) {
  struct Params {
    PlainTensor logits, rows, seen, counts, bias, tokens, probs;
  };

  const Params params{PlainTensor(logits),
                      PlainTensor(rows),
                      PlainTensor(seen),
                      PlainTensor(counts),
                      PlainTensor(logit_bias),
                      PlainTensor(tokens),
                      PlainTensor(probs)};
  as_cpu(stream).enqueue("sample", 1, params, [](const Params& p, int) {
    Tensor drawn = p.tokens.tensor();
    Tensor distribution = p.probs.tensor();
    ref::sample(p.logits.tensor(),
                p.rows.tensor(),
                p.seen.tensor(),
                p.counts.tensor(),
                p.bias.tensor(),
                drawn,
                distribution);
  });
}

void fill_normal(Stream& stream, uint64_t seed, uint64_t stream_id, Tensor& out) {
  struct Params {
    PlainTensor out;
    uint64_t seed, stream_id;
  };

  as_cpu(stream).enqueue(
      "fill_normal", 1, Params{PlainTensor(out), seed, stream_id}, [](const Params& p, int) {
        Tensor to = p.out.tensor();
        ref::fill_normal(p.seed, p.stream_id, to);
      });
}

}  // namespace ops
}  // namespace mstar
