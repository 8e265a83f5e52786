#include "mstar/engine/model.h"

#include "mstar/base/error.h"
#include "mstar/graph/compile.h"

namespace mstar {

void Model::check_weights(const LoadContext& context) {
  for (const std::string& node : graph::compile(get_graph_walk_graphs()).nodes) {
    static_cast<void>(get_submodule(node, context));
  }
}

std::vector<PreparedRequest> Model::process_parts(const ModelRequest& request) const {
  std::vector<PreparedRequest> parts;
  parts.push_back(process_prompt(request));
  return parts;
}

std::vector<int32_t> Model::tokenize(std::string_view, bool) const {
  throw Error(ErrorCode::kUnsupported, "[tokenize] this model has no tokenizer");
}

std::string Model::detokenize(const std::vector<int32_t>&) const {
  throw Error(ErrorCode::kUnsupported, "[detokenize] this model has no tokenizer");
}

std::string Model::prompt_text(const std::vector<int32_t>& ids) const {
  return detokenize(ids);
}

}  // namespace mstar
