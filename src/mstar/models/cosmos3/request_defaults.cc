#include "mstar/models/cosmos3/request_defaults.h"

#include <algorithm>
#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"

namespace mstar::cosmos3 {

RequestDefaults RequestDefaults::load(const std::string& folder,
                                      std::vector<RequestParameter>& parameters) {
  RequestDefaults out;
  const std::filesystem::path path = std::filesystem::path(folder) / "request_defaults.json";
  if (!std::filesystem::exists(path)) {
    return out;
  }
  const Json file = Json::parse(read_text_file(path.string()), path.string());
  const ParameterTable table(parameters);
  JsonReader reader(file, path.string());
  const auto section = [&](std::string_view name) {
    const Json* found = reader.find(name);
    if (found == nullptr) {
      return Json::object();
    }
    // Checked like a request's; only what the file says is kept, not what it leaves to the table.
    const Json resolved = table.resolve(*found, str_cat(path.string(), " \"", name, "\""));
    Json kept = Json::object();
    for (const auto& [key, value] : found->get_object()) {
      const std::string& parameter = table.find(key)->name;
      kept.set(parameter, *resolved.find(parameter));
    }
    return kept;
  };
  const Json all = section("all");
  out.image_ = section("image");
  out.video_ = section("video");
  out.action_ = section("action");
  reader.finish();
  for (RequestParameter& parameter : parameters) {
    if (const Json* value = all.find(parameter.name)) {
      parameter.fallback = *value;
    }
  }
  return out;
}

Json RequestDefaults::fill(const Json& given, Modality wants) const {
  Json out = given;
  const Json* mode = given.find("action_mode");
  const Json& section = mode != nullptr && !mode->is_null() ? action_
                        : wants == Modality::kImage         ? image_
                        : wants == Modality::kAction        ? action_
                                                            : video_;
  const Json* seconds = given.find("seconds");
  for (const auto& [key, value] : section.get_object()) {
    if (key == "num_frames" && seconds != nullptr && !seconds->is_null()) {
      continue;  // the request gives the length in its own way
    }
    const Json* found = out.find(key);
    if (found == nullptr || found->is_null()) {
      out.set(key, value);
    }
  }
  return out;
}

}  // namespace mstar::cosmos3
