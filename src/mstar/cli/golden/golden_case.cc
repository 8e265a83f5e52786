#include "mstar/cli/golden/golden_case.h"

#include <cstdio>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/checkpoint/safetensors.h"

namespace mstar::golden {

namespace {

const Json& require(const GoldenCase& golden, std::string_view key) {
  const Json* value = golden.config.find(key);
  if (value == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[", golden.name, "] config has no \"", key, "\""));
  }
  return *value;
}

Tolerance read_tolerance(const Json& json) {
  Tolerance tolerance;
  if (const Json* exact = json.find("exact")) {
    tolerance.exact = exact->get_bool();
  }
  if (const Json* atol = json.find("atol")) {
    tolerance.atol = atol->get_double();
  }
  if (const Json* rtol = json.find("rtol")) {
    tolerance.rtol = rtol->get_double();
  }
  return tolerance;
}

std::string in_percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g %%", share * 100.0);
  return text;
}

std::string in_short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2e", value);
  return text;
}

}  // namespace

int64_t GoldenCase::get_int(std::string_view key) const {
  return require(*this, key).get_int();
}

double GoldenCase::get_double(std::string_view key) const {
  return require(*this, key).get_double();
}

double GoldenCase::get_double(std::string_view key, double fallback) const {
  const Json* value = config.find(key);
  return value == nullptr || value->is_null() ? fallback : value->get_double();
}

bool GoldenCase::get_bool(std::string_view key, bool fallback) const {
  const Json* value = config.find(key);
  return value == nullptr || value->is_null() ? fallback : value->get_bool();
}

std::string GoldenCase::get_string(std::string_view key) const {
  return require(*this, key).get_string();
}

std::vector<int64_t> GoldenCase::get_ints(std::string_view key) const {
  std::vector<int64_t> values;
  for (const Json& item : require(*this, key).get_array()) {
    values.push_back(item.get_int());
  }
  return values;
}

std::vector<GoldenCase> read_cases(const std::string& folder) {
  const std::string path = str_cat(folder, "/cases.json");
  const Json json = Json::parse(read_text_file(path), path);
  const Json* format = json.find("format");
  // Folders recorded before the format had a number have none.
  if (format != nullptr && (!format->is_integer() || format->get_int() != 1)) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[", path, "] is not of format 1"));
  }
  std::vector<GoldenCase> cases;
  for (const Json& record : json.at("cases").get_array()) {
    GoldenCase golden;
    golden.folder = folder;
    golden.name = record.at("name").get_string();
    const Json* config = record.find("config");  // lists of texts have none
    golden.config = config != nullptr ? *config : Json::object();
    // The folder of weights stands beside the configuration or in it.
    if (const Json* weights = record.find("weights");
        weights != nullptr && !golden.config.contains("weights")) {
      golden.config.set("weights", *weights);
    }
    if (const Json* classes = golden.config.find("class")) {
      if (classes->is_string()) {
        golden.classes.push_back(classes->get_string());
      } else {
        for (const Json& item : classes->get_array()) {
          golden.classes.push_back(item.get_string());
        }
      }
    }
    if (const Json* tolerances = record.find("tolerance")) {
      for (const auto& [output, tolerance] : tolerances->get_object()) {
        golden.tolerances[output] = read_tolerance(tolerance);
      }
    }
    if (const Json* tensors = record.find("tensors")) {
      for (const auto& [tensor_name, entry] : tensors->get_object()) {
        golden.roles[tensor_name] = entry.at("role").get_string();
      }
    }
    golden.config.set("_file", record.contains("file") ? record.at("file") : Json(""));
    cases.push_back(std::move(golden));
  }
  return cases;
}

void open_data(GoldenCase& golden, const std::string& file) {
  golden.data = SafetensorsFile::open(str_cat(golden.folder, "/", file));
}

void CaseResult::expect(const std::string& output, const Tensor& got, std::string_view variant) {
  if (!golden_.has(output)) {
    fail(str_cat("no recorded tensor \"", output, "\""));
    return;
  }
  expect_equal_to(output, got, golden_.tensor(output), variant);
}

void CaseResult::expect_if_there(const std::string& output,
                                 const Tensor& got,
                                 std::string_view variant) {
  if (golden_.has(output)) {
    expect(output, got, variant);
  }
}

void CaseResult::expect_equal_to(const std::string& output,
                                 const Tensor& got,
                                 const Tensor& want,
                                 std::string_view variant) {
  const auto tolerance = golden_.tolerances.find(output);
  if (tolerance == golden_.tolerances.end()) {
    fail(str_cat("no tolerance for \"", output, "\""));
    return;
  }
  ++compared_[output];
  const Comparison comparison = compare(got, want, tolerance->second);
  if (!comparison.passed) {
    fail(str_cat(
        output, variant.empty() ? "" : str_cat(" (", variant, ")"), ": ", comparison.to_string()));
  }
  if (worst_output_.empty() || comparison.worst > worst_) {
    worst_ = comparison.worst;
    worst_abs_ = comparison.max_abs;
    worst_output_ = output;
  }
}

void CaseResult::finish() {
  if (skipped()) {
    return;
  }
  for (const auto& [name, role] : golden_.roles) {
    if (role == "output" && compared_[name] == 0) {
      fail(str_cat("output \"", name, "\" was not computed"));
    }
  }
}

std::string CaseResult::summary() const {
  if (skipped()) {
    return skipped_;
  }
  if (!passed()) {
    return str_join(failures_, "\n     ");
  }
  if (worst_output_.empty()) {
    return "all equal";
  }
  return str_cat("worst ",
                 in_percent(worst_),
                 " of the tolerance, max abs ",
                 in_short(worst_abs_),
                 " (",
                 worst_output_,
                 ")");
}

void load_only(const GoldenCase& golden,
               Module& module,
               NameMapping mapping,
               std::string_view prefix) {
  for (const auto& [name, role] : golden.roles) {
    if (role != "weight") {
      mapping.skip.push_back(str_cat("^", name, "$"));
    }
  }
  load_strictly(*golden.data, module.load_targets(prefix), mapping);
}

void load_weights(const GoldenCase& golden,
                  Module& module,
                  RunContext& context,
                  NameMapping mapping,
                  std::string_view prefix) {
  load_only(golden, module, std::move(mapping), prefix);
  module.finalize({context.pool});
}

}  // namespace mstar::golden
