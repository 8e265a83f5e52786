#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/engine/model.h"

namespace mstar {

// One model family: how to tell its checkpoints, and how to open one.
struct ModelFamily {
  std::string name;
  bool (*recognizes)(const std::string& path);
  std::unique_ptr<Model> (*open)(const std::string& path, const Json& model_kwargs);
};

// Every family this build knows, one line each (registry.cc).
const std::vector<ModelFamily>& model_families();

// Opens the checkpoint at `path` by the family that recognizes it. Throws Error(kNotFound) when
// there is nothing, Error(kUnsupported) when no family knows it.
std::unique_ptr<Model> open_model(const std::string& path, const Json& model_kwargs);

}  // namespace mstar
