#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mstar/cli/flags.h"
#include "mstar/cli/progress_bar.h"
#include "mstar/engine/model.h"
#include "mstar/runtime/deployment.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"
#include "mstar/runtime/trace.h"

namespace mstar {

// The options of every command that opens a model.
std::vector<Flag> model_flags();

// A model opened as the command line and the deployment's file say; not loaded yet.
struct OpenedModel {
  Deployment deployment;
  std::unique_ptr<TraceWriter> trace;  // null: no --trace
  RuntimeOptions options;
  ServiceOptions service;
  std::unique_ptr<Model> model;
};

// The model in this repository, for commands that are given none: models/shapes beside the working
// directory, or in a folder above or beside the program. "" where there is none.
std::string find_default_model();

// True for what can only be meant as a model: a file or folder that exists, or a path's spelling.
bool looks_like_model(const std::string& word);

// With an empty `path` the model is the one --config names, or the default one. Throws what opening
// throws.
OpenedModel open_from_flags(const Flags& flags, const std::string& path);

// Every KV pool of the model keeps pages of prompts that begin alike.
void enable_prefix_caching(OpenedModel& opened);

// The model running in this process. Members go in reverse order: the service waits for its
// requests before the runtime ends.
struct LoadedModel {
  OpenedModel opened;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Service> service;
};

// Loads weights and warms up, showing how far it is.
LoadedModel load_model(OpenedModel opened, ProgressBar& bar);

}  // namespace mstar
