#include "mstar/kernels/ops/resize.h"

#include "mstar/kernels/ref/bridge.h"
#include "mstar/kernels/ref/resize.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::ops {

void resize(Stream& stream, const Tensor& x, ResizeFilter filter, bool antialias, Tensor& out) {
  struct Params {
    ref::PlainTensor x, out;
    ResizeFilter filter;
    bool antialias;
  };

  const Params params{ref::PlainTensor(x), ref::PlainTensor(out), filter, antialias};
  as_cpu(stream).enqueue("resize", 1, params, [](const Params& p, int) {
    Tensor to = p.out.tensor();
    ref::resize(p.x.tensor(), p.filter, p.antialias, to);
  });
}

void upsample_nearest_2x(Stream& stream, const Tensor& x, Tensor& out) {
  resize(stream, x, ResizeFilter::kNearest, false, out);
}

}  // namespace mstar::ops
