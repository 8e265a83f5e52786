#include "mstar/models/common/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/engine/finite.h"

namespace mstar {

TensorList token_logprobs(const Tensor& logits, int32_t token, int32_t num_top) {
  const int64_t vocab = logits.num_elements();
  MSTAR_CHECK(token >= 0 && token < vocab && num_top >= 0, "token=", token, " of ", vocab);
  const float* values = logits.data<float>();
  const auto logit = [&](int32_t id) {
    return std::isnan(values[id]) ? -std::numeric_limits<float>::infinity() : values[id];
  };
  float largest = logit(0);
  for (int32_t id = 1; id < vocab; ++id) {
    largest = std::max(largest, logit(id));
  }
  double sum = 0.0;
  for (int32_t id = 0; id < vocab; ++id) {
    sum += std::exp(static_cast<double>(logit(id)) - largest);
  }
  const double log_sum = largest + std::log(sum);

  std::vector<int32_t> ids(static_cast<size_t>(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  const auto num_kept = std::min<int64_t>(num_top, vocab);
  std::partial_sort(ids.begin(), ids.begin() + num_kept, ids.end(), [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  ids.resize(static_cast<size_t>(num_kept));
  ids.insert(ids.begin(), token);
  std::vector<float> logprobs;
  for (const int32_t id : ids) {
    logprobs.push_back(static_cast<float>(logit(id) - log_sum));
  }
  const Shape shape{static_cast<int64_t>(ids.size())};
  return {Tensor::from(ids, shape), Tensor::from(logprobs, shape)};
}

void require_finite(const Tensor& hidden, std::string_view where) {
  // Not finite: all bits of the exponent are set, so that one more carries into the sign's place.
  // No branch in the loop, so that it is vectorized.
  const int64_t count = hidden.num_elements();
  bool bad = false;
  if (hidden.dtype() == DType::kF32) {
    uint32_t carries = 0;
    for (int64_t index = 0; index < count; ++index) {
      uint32_t bits = 0;
      std::memcpy(&bits, hidden.bytes() + index * 4, sizeof(bits));
      carries |= (bits & 0x7F800000U) + 0x00800000U;
    }
    bad = (carries & 0x80000000U) != 0;
  } else {
    uint16_t carries = 0;
    for (int64_t index = 0; index < count; ++index) {
      uint16_t bits = 0;
      std::memcpy(&bits, hidden.bytes() + index * 2, sizeof(bits));
      carries = static_cast<uint16_t>(carries | ((bits & 0x7F80U) + 0x0080U));
    }
    bad = (carries & 0x8000U) != 0;
  }
  if (bad) {
    throw Error(ErrorCode::kInternal,
                str_cat("[", where, "] ", kNotFinite, ": the weights are broken or overflow"));
  }
}

}  // namespace mstar
