#include "mstar/kernels/ops/activation.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

Activation parse_activation(std::string_view name) {
  if (name == "silu" || name == "swish") {
    return Activation::kSilu;
  }
  if (name == "gelu") {
    return Activation::kGelu;
  }
  if (name == "gelu_pytorch_tanh" || name == "gelu_tanh" || name == "gelu_new") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") {
    return Activation::kRelu;
  }
  if (name == "relu2") {
    return Activation::kRelu2;
  }
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[activation] found \"",
                      name,
                      "\", expected silu, gelu, gelu_pytorch_tanh, relu or relu2"));
}

}  // namespace mstar
