#include "mstar/resources/stream_script.h"

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr ResourceId kKv = 0;
constexpr ResourceId kAttention = 1;
constexpr RequestHandle kRequest = 0;

}  // namespace

StreamScript::StreamScript(Stream& stream, const Config& config)
    : stream_(stream), config_(config) {
  const ResourceBuildInfo info{.labels = &labels_};
  cache_ = std::make_unique<KvCache>(kKv,
                                     "kv",
                                     KVSpec{.num_layers = 1,
                                            .num_kv_heads = config.num_kv_heads,
                                            .head_dim = config.head_dim,
                                            .page_size = config.page_size,
                                            .max_num_pages = config.num_pages,
                                            .dtype = config.dtype},
                                     info);
  AttentionSpec spec{.kv = "kv"};
  spec.options.scale = config.scale;
  attention_ = std::make_unique<PagedAttention>(kAttention, "attn", spec, info, cache_.get());
  runner_ = std::make_unique<StepRunner>(std::vector<Resource*>{cache_.get(), attention_.get()});
  runner_->ingest_request(kRequest, {});
}

StreamScript::~StreamScript() {
  runner_->remove_request(kRequest);
}

const CacheStream& StreamScript::stream_of(const std::string& name) const {
  const CacheStream* stream = cache_->find_stream(kRequest, labels_.get(name));
  if (stream == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[script] no stream '", name, "' yet"));
  }
  return *stream;
}

Tensor StreamScript::run(const SubmoduleStep& step,
                         LabelId label,
                         const Tensor& q,
                         const Tensor& k,
                         const Tensor& v) {
  const StepContext context{.request_ids = {kRequest}, .num_real = 1};
  Reservation reservation = runner_->reserve(step, context);
  if (!reservation) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[script] ",
                        to_string(reservation.outcome().reason),
                        ", ",
                        reservation.outcome().pages_short,
                        " pages short"));
  }
  reservation.plan();
  reservation.stage(stream_);
  Tensor out;
  if (q.defined()) {
    out = Tensor::empty(q.shape(), q.dtype());
    attention_->attend(stream_, {&context, label, 0}, q, k, v, out);
    stream_.synchronize();
  }
  reservation.commit();
  runner_->finish(step, context);
  return out;
}

Tensor StreamScript::step(const std::string& name,
                          const Tensor& q,
                          const Tensor& k,
                          const Tensor& v,
                          bool causal,
                          bool commit) {
  const LabelId label = labels_.intern(name);
  SubmoduleStep declared;
  declared.add_segment(kRequest, label, static_cast<int32_t>(k.dim(0)));
  declared.kv.add(kKv).commit = commit;
  declared.attention.add(kAttention).causal = causal;
  return run(declared, label, q, k, v);
}

Tensor StreamScript::read(const std::string& name, const Tensor& q) {
  const LabelId label = stream_of(name).label;
  SubmoduleStep declared;
  declared.kv.add(kKv).segments = {{kRequest, label, 0}};
  AttentionStep& attention = declared.attention.add(kAttention);
  attention.segments = {{kRequest, label, static_cast<int32_t>(q.dim(0))}};
  attention.causal = false;
  return run(declared, label, q, Tensor(), Tensor());
}

void StreamScript::fork(const std::string& from, const std::string& to) {
  SubmoduleStep declared;
  KVStep& kv = declared.kv.add(kKv);
  kv.segments = {{kRequest, stream_of(from).label, 0}};
  kv.post_forks = {{kRequest, labels_.get(from), labels_.intern(to)}};
  run(declared, kMainLabel, Tensor(), Tensor(), Tensor());
}

void StreamScript::retain(const std::string& name, const RetentionPolicy& policy) {
  SubmoduleStep declared;
  KVStep& kv = declared.kv.add(kKv);
  kv.segments = {{kRequest, stream_of(name).label, 0}};
  kv.retentions = {{stream_of(name).label, policy}};
  run(declared, kMainLabel, Tensor(), Tensor(), Tensor());
}

int64_t StreamScript::resident(const std::string& name) const {
  const LabelId label = labels_.find(name);
  const CacheStream* stream = label < 0 ? nullptr : cache_->find_stream(kRequest, label);
  return stream == nullptr ? 0 : stream->resident_len();
}

std::vector<int64_t> StreamScript::dropped_tokens(const std::string& name) const {
  const CacheStream& stream = stream_of(name);
  const int64_t first = stream.num_protected_pages(config_.page_size) * config_.page_size;
  std::vector<int64_t> dropped;
  for (int64_t token = first; token < first + stream.released; ++token) {
    dropped.push_back(token);
  }
  return dropped;
}

namespace {

using TensorOf = std::function<Tensor(const std::string&)>;

void expect_resident(const StreamScript& script,
                     const std::string& name,
                     const Json& op,
                     const char* key,
                     StreamScriptResult& result) {
  const Json* wanted = op.find(key);
  if (wanted != nullptr && wanted->get_int() != script.resident(name)) {
    result.problems.push_back(str_cat(op.at("op").get_string(),
                                      " ",
                                      name,
                                      ": ",
                                      script.resident(name),
                                      " resident tokens, expected ",
                                      wanted->get_int()));
  }
}

void run_retain(StreamScript& script, const Json& op, StreamScriptResult& result) {
  const std::string& name = op.at("stream").get_string();
  script.retain(name,
                {.context_budget = op.at("context_budget").get_int(),
                 .protected_prefix = op.at("protected_prefix").get_int()});
  std::vector<int64_t> wanted;
  for (const Json& token : op.at("dropped_tokens").get_array()) {
    wanted.push_back(token.get_int());
  }
  if (wanted != script.dropped_tokens(name)) {
    result.problems.push_back(str_cat("retain ",
                                      name,
                                      ": dropped ",
                                      str_join(script.dropped_tokens(name), " "),
                                      "; expected ",
                                      str_join(wanted, " ")));
  }
  expect_resident(script, name, op, "resident", result);
}

void run_op(StreamScript& script,
            const Json& op,
            const TensorOf& tensor,
            StreamScriptResult& result) {
  const std::string& kind = op.at("op").get_string();
  if (kind == "fork") {
    script.fork(op.at("from").get_string(), op.at("to").get_string());
    return;
  }
  if (kind == "retain") {
    run_retain(script, op, result);
    return;
  }
  const std::string& name = op.at("stream").get_string();
  const auto input = [&](const char* key) { return tensor(op.at(key).get_string()); };
  const std::string& out = op.at("out").get_string();
  if (kind == "step") {
    expect_resident(script, name, op, "resident_before", result);
    result.outputs.emplace_back(out,
                                script.step(name,
                                            input("q"),
                                            input("k"),
                                            input("v"),
                                            op.at("causal").get_bool(),
                                            op.at("commit").get_bool()));
  } else if (kind == "read") {
    expect_resident(script, name, op, "resident", result);
    result.outputs.emplace_back(out, script.read(name, input("q")));
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[script] op '", kind, "', expected step, read, fork or retain"));
  }
}

}  // namespace

StreamScriptResult run_stream_script(Stream& stream, const Json& config, const TensorOf& tensor) {
  StreamScript script(stream,
                      {.num_heads = config.at("num_heads").get_int(),
                       .num_kv_heads = config.at("num_kv_heads").get_int(),
                       .head_dim = config.at("head_dim").get_int(),
                       .page_size = config.at("page_size").get_int()});
  StreamScriptResult result;
  for (const Json& op : config.at("ops").get_array()) {
    run_op(script, op, tensor, result);
    script.cache().check_invariants();
  }
  return result;
}

}  // namespace mstar
