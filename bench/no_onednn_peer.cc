#include "bench/onednn_peer.h"

namespace mstar::bench {

std::function<void()> onednn_matmul(int64_t, int64_t, int64_t, DType, int, int) {
  return {};
}

std::function<void()> onednn_conv3d(const ConvSizes&, DType, int) {
  return {};
}

}  // namespace mstar::bench
