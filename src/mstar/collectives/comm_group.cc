#include "mstar/collectives/comm_group.h"

#include "mstar/base/check.h"
#include "mstar/collectives/region.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar {

namespace {

struct CopyParams {
  Block from;
  Block to;
};

void copy_all(Stream& stream, const Tensor& x, Tensor& out) {
  MSTAR_CHECK(x.shape() == out.shape(), x.to_string(), " to ", out.to_string());
  if (x.bytes() == out.bytes() || x.num_elements() == 0) {
    return;
  }
  as_cpu(stream).enqueue(
      "comm_copy", 1, CopyParams{Block::of(x), Block::of(out)}, [](const CopyParams& p, int) {
        copy_region({&p.from, 0, 0, p.from.dims[0]}, {&p.to, 0, 0, p.to.dims[0]});
      });
}

class SingleRankGroup : public CommGroup {
 public:
  int rank() const override { return 0; }

  int world_size() const override { return 1; }

  void all_reduce(Stream&, Tensor&) override {}

  void all_gather(Stream& stream, const Tensor& x, int, Tensor& out) override {
    copy_all(stream, x, out);
  }

  void reduce_scatter(Stream& stream, const Tensor& x, int, Tensor& out) override {
    copy_all(stream, x, out);
  }

  void broadcast(Stream&, Tensor&, int) override {}

  void all_to_all(Stream& stream, const Tensor& x, int, int, std::span<const int64_t>, Tensor& out)
      override {
    copy_all(stream, x, out);
  }

  void barrier(Stream&) override {}

  void abort(const std::string&) override {}
};

}  // namespace

CommGroup& single_rank_group() {
  static SingleRankGroup group;
  return group;
}

}  // namespace mstar
