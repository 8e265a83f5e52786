#include "mstar/engine/model.h"

#include "mstar/base/error.h"

namespace mstar {

std::vector<int32_t> Model::tokenize(std::string_view, bool) const {
  throw Error(ErrorCode::kUnsupported, "[tokenize] this model has no tokenizer");
}

std::string Model::detokenize(const std::vector<int32_t>&) const {
  throw Error(ErrorCode::kUnsupported, "[detokenize] this model has no tokenizer");
}

}  // namespace mstar
