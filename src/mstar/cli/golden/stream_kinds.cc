// Scripts of operations on named cache streams: append, scratch, fork, retain, read.
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/cli/golden/resource_rig.h"

namespace mstar::golden {

namespace {

constexpr RequestHandle kRequest = 0;

class Script {
 public:
  Script(const GoldenCase& golden, RunContext& context, CaseResult& result)
      : golden_(golden), context_(context), result_(result), rig_(specs(golden), 1) {}

  void run() {
    const Json::Array& script = golden_.config.at("ops").get_array();
    for (size_t index = 0; index < script.size(); ++index) {
      const Json& op = script[index];
      const std::string& kind = op.at("op").get_string();
      if (kind == "step") {
        const Json* next = index + 1 < script.size() ? &script[index + 1] : nullptr;
        const bool retains = next != nullptr && next->at("op").get_string() == "retain";
        run_step(op, retains ? next : nullptr);
      } else if (kind == "read") {
        run_read(op);
      } else if (kind == "fork") {
        forks_.push_back({kRequest, label(op.at("from")), label(op.at("to"))});
      } else if (kind == "retain") {
        check_retained(op);
      } else {
        throw Error(ErrorCode::kInvalidArgument,
                    str_cat("[", golden_.name, "] unknown op \"", kind, "\""));
      }
    }
    rig_.kv("kv").check_invariants();
  }

 private:
  static ResourceRig::Specs specs(const GoldenCase& golden) {
    AttentionSpec attention;
    attention.kv = "kv";
    return {{"kv",
             small_kv(golden.get_int("num_kv_heads"),
                      golden.get_int("head_dim"),
                      DType::kF32,
                      golden.get_int("page_size"))},
            {"attn", attention}};
  }

  LabelId label(const Json& name) { return rig_.labels().intern(name.get_string()); }

  void attend(const SubmoduleStep& step, LabelId stream, const Json& op, bool with_kv) {
    auto& attention = dynamic_cast<AttentionResource&>(*rig_.resources().at("attn"));
    const Tensor q = golden_.tensor(op.at("q").get_string());
    const Tensor k = with_kv ? golden_.tensor(op.at("k").get_string()) : Tensor();
    const Tensor v = with_kv ? golden_.tensor(op.at("v").get_string()) : Tensor();
    rig_.run(context_.stream, step, [&](const AttentionContext& main) {
      Tensor out = context_.stream.empty(q.shape(), q.dtype());
      attention.attend(context_.stream, main.at_label(stream), q, k, v, out);
      result_.expect(op.at("out").get_string(), out);
    });
  }

  // The cache's part of a step; forks that stand before it in the script come first.
  KVStep& add_kv(SubmoduleStep& step) {
    KVStep& kv = step.kv.add(rig_.id("kv"));
    kv.pre_forks = forks_;
    forks_.clear();
    return kv;
  }

  void run_step(const Json& op, const Json* retain) {
    const LabelId stream = label(op.at("stream"));
    SubmoduleStep step;
    step.add_segment(kRequest, stream, static_cast<int32_t>(op.at("new").get_int()));
    KVStep& kv = add_kv(step);
    kv.commit = op.at("commit").get_bool();
    if (retain != nullptr) {
      kv.retentions.push_back(
          {stream,
           {retain->at("context_budget").get_int(), retain->at("protected_prefix").get_int()}});
    }
    step.attention.add(rig_.id("attn")).causal = op.at("causal").get_bool();
    attend(step, stream, op, true);
  }

  void run_read(const Json& op) {
    const LabelId stream = label(op.at("stream"));
    SubmoduleStep step;
    add_kv(step).segments.push_back({kRequest, stream, 0});
    AttentionStep& attention = step.attention.add(rig_.id("attn"));
    attention.causal = op.at("causal").get_bool();
    attention.segments.push_back({kRequest, stream, static_cast<int32_t>(op.at("rows").get_int())});
    attend(step, stream, op, false);
  }

  void check_retained(const Json& op) {
    const CacheStream* stream = rig_.kv("kv").find_stream(kRequest, label(op.at("stream")));
    const int64_t want = op.at("resident").get_int();
    if (stream == nullptr || stream->resident_len() != want) {
      result_.fail(str_cat("after retention ",
                           stream == nullptr ? 0 : stream->resident_len(),
                           " tokens are resident, expected ",
                           want));
    }
  }

  const GoldenCase& golden_;
  RunContext& context_;
  CaseResult& result_;
  ResourceRig rig_;
  std::vector<Fork> forks_;  // not yet done
};

void run_script(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  Script(golden, context, result).run();
}

}  // namespace

void add_stream_kinds(Registry& registry) {
  registry.add_prefix("stream_", run_script);
}

}  // namespace mstar::golden
