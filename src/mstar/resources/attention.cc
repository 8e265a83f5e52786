#include "mstar/resources/attention.h"

#include "mstar/base/check.h"
#include "mstar/kernels/ops/embedding.h"

namespace mstar {

void AttentionResource::write_context(Stream& /*stream*/,
                                      const AttentionContext& /*context*/,
                                      const Tensor& /*k*/,
                                      const Tensor& /*v*/) {
  MSTAR_CHECK(false, "resource '", key(), "' has no context stream");
}

bool AttentionResource::has_context_growth(const AttentionContext& /*context*/) const {
  return false;
}

void AttentionResource::select_last_hidden(Stream& stream,
                                           const AttentionContext& context,
                                           const Tensor& hidden,
                                           Tensor& out) const {
  ops::gather_rows(stream, hidden, last_rows(context), out);
}

void AttentionCallable::apply_qk(Stream& stream, Tensor& q, Tensor& k) const {
  if (positions_ != nullptr) {
    positions_->apply_qk(stream, context_, q, k);
  }
}

}  // namespace mstar
