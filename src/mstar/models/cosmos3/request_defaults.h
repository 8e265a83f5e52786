#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/engine/model.h"

namespace mstar::cosmos3 {

// What a checkpoint of its own dimensions wants where a request says nothing, from its optional
// request_defaults.json:
//   {"all": {"size": "64x64"}, "image": {…}, "video": {"num_frames": 9}, "action": {…}}
// Names and values are those of request parameters. const after load, thread-safe.
class RequestDefaults {
 public:
  // Reads the folder's file, if there is one, and writes the values under "all" into `parameters`
  // as their fallback, so that help, /v1/models and the page show them. Throws
  // Error(kInvalidArgument) naming the file and what in it is not a parameter's.
  static RequestDefaults load(const std::string& folder, std::vector<RequestParameter>& parameters);

  // `given` with the members it lacks from the section that belongs to the request: "action" when
  // it names an action mode, else that of the wanted output.
  Json fill(const Json& given, Modality wants) const;

 private:
  Json image_ = Json::object();
  Json video_ = Json::object();
  Json action_ = Json::object();
};

}  // namespace mstar::cosmos3
