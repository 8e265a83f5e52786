#include "mstar/models/registry.h"

#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/models/cosmos3/model.h"
#include "mstar/models/llama/model.h"
#include "mstar/models/whisper/model.h"

namespace mstar {

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> families = {
      {"cosmos3", cosmos3::Cosmos3Model::recognizes, cosmos3::Cosmos3Model::open},
      {"llama", llama::LlamaModel::recognizes, llama::LlamaModel::open},
      {"whisper", whisper::WhisperModel::recognizes, whisper::WhisperModel::open},
  };
  return families;
}

std::unique_ptr<Model> open_model(const std::string& path, const Json& model_kwargs) {
  if (!std::filesystem::exists(path)) {
    throw Error(ErrorCode::kNotFound, str_cat("[model] no file or folder \"", path, "\""));
  }
  std::vector<std::string> names;
  for (const ModelFamily& family : model_families()) {
    if (family.recognizes(path)) {
      return family.open(path, model_kwargs);
    }
    names.push_back(family.name);
  }
  throw Error(ErrorCode::kUnsupported,
              str_cat("[model] \"",
                      path,
                      "\" is no checkpoint of a known family (",
                      str_join(names, ", "),
                      ")"));
}

}  // namespace mstar
