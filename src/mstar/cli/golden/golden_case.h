#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/base/thread_pool.h"
#include "mstar/checkpoint/load.h"
#include "mstar/components/module.h"
#include "mstar/tensor/compare.h"
#include "mstar/tensor/stream.h"

namespace mstar::golden {

// One record of a cases.json with its data: recorded inputs, weights and outputs of a reference.
struct GoldenCase {
  std::string folder;  // of the cases.json
  std::string name;
  std::vector<std::string> classes;  // config.class: every one of them must give the outputs
  Json config;
  std::map<std::string, Tolerance> tolerances;  // by output
  std::map<std::string, std::string> roles;     // input, weight, output, info; by tensor
  std::unique_ptr<CheckpointReader> data;

  Tensor tensor(std::string_view tensor_name) const { return data->get(tensor_name); }

  bool has(std::string_view tensor_name) const { return data->find(tensor_name) != nullptr; }

  // Numbers of the config; throw Error(kInvalidArgument) naming the case when they are missing.
  int64_t get_int(std::string_view key) const;
  double get_double(std::string_view key) const;
  double get_double(std::string_view key, double fallback) const;
  bool get_bool(std::string_view key, bool fallback) const;
  std::string get_string(std::string_view key) const;
  std::vector<int64_t> get_ints(std::string_view key) const;
};

// Reads the records of folder/cases.json. Throws Error(kInvalidArgument) for another format.
std::vector<GoldenCase> read_cases(const std::string& folder);

// Opens the case's tensors. Apart from read_cases() so that one broken file fails one case.
void open_data(GoldenCase& golden, const std::string& file);

// What a runner works with.
struct RunContext {
  Stream& stream;
  ThreadPool& pool;
  std::string model_folder;  // --model; empty when not given
};

// Collects the comparisons of one case.
class CaseResult {
 public:
  explicit CaseResult(const GoldenCase& golden) : golden_(golden) {}

  // Compares `got` with the recorded tensor under the case's tolerance for it. `variant` tells
  // which way of computing it this was, for messages.
  void expect(const std::string& output, const Tensor& got, std::string_view variant = {});

  // The same when the case may lack that output.
  void expect_if_there(const std::string& output, const Tensor& got, std::string_view variant = {});

  // Compares with another truth than the recorded tensor itself (a reordered one).
  void expect_equal_to(const std::string& output,
                       const Tensor& got,
                       const Tensor& want,
                       std::string_view variant = {});

  void fail(std::string message) { failures_.push_back(std::move(message)); }

  // For cases that cannot run here (their model folder was not given).
  void skip(std::string reason) { skipped_ = std::move(reason); }

  // Every recorded output must have been compared; call last.
  void finish();

  bool passed() const { return failures_.empty(); }

  bool skipped() const { return !skipped_.empty(); }

  // "worst 12 % of the tolerance (out)", or the failures, or why it was skipped.
  std::string summary() const;

 private:
  const GoldenCase& golden_;
  std::map<std::string, int> compared_;
  std::vector<std::string> failures_;
  std::string skipped_;
  double worst_ = 0.0;
  double worst_abs_ = 0.0;
  std::string worst_output_;
};

// Loads the case's weights into the module (all of them, strictly) and finalizes it. `mapping` adds
// rules to the identity.
void load_weights(const GoldenCase& golden,
                  Module& module,
                  RunContext& context,
                  NameMapping mapping = {},
                  std::string_view prefix = {});

// Only loads, for looking at what came in.
void load_only(const GoldenCase& golden,
               Module& module,
               NameMapping mapping = {},
               std::string_view prefix = {});

}  // namespace mstar::golden
