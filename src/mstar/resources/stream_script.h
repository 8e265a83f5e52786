#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/resources/attention_plan.h"
#include "mstar/resources/kv_cache.h"
#include "mstar/resources/step_runner.h"

namespace mstar {

// One request whose named streams grow, are read, forked and cut, step by step, through the real
// cache, attention and step runner: what recorded scripts and tests drive. One thread.
class StreamScript {
 public:
  struct Config {
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    int64_t page_size = 0;
    int64_t num_pages = 64;
    DType dtype = DType::kF32;
    float scale = 0.0F;  // 0: 1 / sqrt(head_dim)
  };

  StreamScript(Stream& stream, const Config& config);
  ~StreamScript();

  // Appends k.dim(0) tokens and attends with q over all resident ones; `commit` off takes them
  // back. q [new, num_heads, head_dim], k, v [new, num_kv_heads, head_dim]. Throws
  // Error(kResourceExhausted) when pages are out.
  Tensor step(const std::string& name,
              const Tensor& q,
              const Tensor& k,
              const Tensor& v,
              bool causal,
              bool commit);

  // Attends without appending, not causal.
  Tensor read(const std::string& name, const Tensor& q);

  void fork(const std::string& from, const std::string& to);
  void retain(const std::string& name, const RetentionPolicy& policy);

  int64_t resident(const std::string& name) const;
  std::vector<int64_t> dropped_tokens(const std::string& name) const;

  KvCache& cache() { return *cache_; }

 private:
  Tensor run(const SubmoduleStep& step,
             LabelId label,
             const Tensor& q,
             const Tensor& k,
             const Tensor& v);
  const CacheStream& stream_of(const std::string& name) const;

  Stream& stream_;
  Config config_;
  LabelTable labels_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<PagedAttention> attention_;
  std::unique_ptr<StepRunner> runner_;
};

struct StreamScriptResult {
  std::vector<std::pair<std::string, Tensor>> outputs;  // by the name the script gives them
  std::vector<std::string> problems;                    // lengths and dropped tokens that differ
};

// Runs a recorded script: `config` has num_heads, num_kv_heads, head_dim, page_size and `ops`, a
// list of {"op": "step" | "read" | "fork" | "retain", …}; `tensor` gives the recorded inputs by
// name. Throws Error(kInvalidArgument) on a script it does not understand.
StreamScriptResult run_stream_script(Stream& stream,
                                     const Json& config,
                                     const std::function<Tensor(const std::string&)>& tensor);

}  // namespace mstar
