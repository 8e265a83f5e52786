#include "mstar/components/moe.h"

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/kernels/ops/activation.h"
#include "mstar/kernels/ops/embedding.h"
#include "mstar/kernels/ops/gating.h"
#include "mstar/kernels/ops/moe.h"

namespace mstar {

namespace {

std::unique_ptr<Router> router_or_default(std::unique_ptr<Router> router, const MoeConfig& config) {
  if (router != nullptr) {
    return router;
  }
  return std::make_unique<TopKRouter>(
      config.hidden_size, config.num_experts, config.num_experts_per_tok, config.norm_topk_prob);
}

ExpertWeights::Config experts_of(const MoeConfig& config) {
  return {.hidden_size = config.hidden_size,
          .num_experts = config.num_experts,
          .moe_intermediate_size = config.moe_intermediate_size};
}

void add_residual(Stream& stream, const Tensor& residual, Tensor& out) {
  if (residual.defined()) {
    ops::add(stream, out, residual, out);
  }
}

// The ranks' packed matrices: pieces [begin, end) of the parameter as one.
PackedWeight pack_pieces(const Parameter& parameter,
                         int begin,
                         int end,
                         const FinalizeOptions& options) {
  if (!parameter.have_one_dtype(begin, end)) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[",
                        parameter.name(),
                        "] gate and up of one expert have different element "
                        "types; store them in one type"));
  }
  const Tensor joined = parameter.join(begin, end);
  return PackedWeight::pack(joined.is_contiguous() ? joined : joined.copy(),
                            options.pool,
                            options.weight_format,
                            options.activations);
}

}  // namespace

TopKRouter::TopKRouter(int64_t hidden_size,
                       int64_t num_experts,
                       int64_t num_experts_per_tok,
                       bool norm_topk_prob)
    : num_experts_per_tok_(num_experts_per_tok),
      norm_topk_prob_(norm_topk_prob),
      parameter_(&add_parameter("weight", {num_experts, hidden_size}, ParameterKind::kMatrix)) {
  if (num_experts_per_tok < 1 || num_experts_per_tok > num_experts) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[TopKRouter] num_experts_per_tok is ",
                        num_experts_per_tok,
                        ", expected 1 to ",
                        num_experts));
  }
}

void TopKRouter::pack(const FinalizeOptions& options) {
  weight_ = take_packed(*parameter_, options);
}

Router::Output TopKRouter::forward(Stream& stream,
                                   const Tensor& hidden_states,
                                   const Tensor&) const {
  const Tensor x = hidden_states.as_rows();
  const Tensor logits = linear_rows(stream, x, weight_, {}, DType::kF32);
  Output out;
  out.routing_weights = stream.empty({x.dim(0), num_experts_per_tok_}, DType::kF32);
  out.selected_experts = stream.empty({x.dim(0), num_experts_per_tok_}, DType::kI32);
  if (x.dim(0) > 0) {
    ops::route_top_k(stream, logits, norm_topk_prob_, out.routing_weights, out.selected_experts);
  }
  return out;
}

ExpertWeights::ExpertWeights(const Config& config) : config_(config) {
  const int64_t size = config.moe_intermediate_size;
  if (size % config.tp_size != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[ExpertWeights] moe_intermediate_size ",
                        size,
                        " is no multiple of ",
                        config.tp_size,
                        " ranks"));
  }
  const int64_t local = size / config.tp_size;
  std::vector<ShardSpec> gate_up;
  std::vector<ShardSpec> down;
  for (int64_t expert = 0; expert < config.num_experts; ++expert) {
    ShardSpec spec;
    spec.stack_index = expert;
    spec.begin = local * config.tp_rank;
    spec.size = local;
    spec.shape = {size, config.hidden_size};
    spec.id = str_cat("gate:", expert);
    gate_up.push_back(spec);
    spec.id = str_cat("up:", expert);
    spec.stack_row = size;
    gate_up.push_back(spec);
    spec.id = str_cat("down:", expert);
    spec.stack_row = 0;
    spec.dim = 1;
    spec.shape = {config.hidden_size, size};
    down.push_back(spec);
  }
  gate_up_parameter_ = &add_parameter("gate_up_proj",
                                      std::move(gate_up),
                                      {config.num_experts, 2 * size, config.hidden_size},
                                      ParameterKind::kMatrix);
  down_parameter_ = &add_parameter("down_proj",
                                   std::move(down),
                                   {config.num_experts, config.hidden_size, size},
                                   ParameterKind::kMatrix);
}

std::vector<StackedParamRule> ExpertWeights::stacked_rules() {
  return {{"experts.gate_up_proj", "experts.*.gate_proj.weight", "gate:*"},
          {"experts.gate_up_proj", "experts.*.up_proj.weight", "up:*"},
          {"experts.down_proj", "experts.*.down_proj.weight", "down:*"},
          // GGUF: all gates in one tensor, all ups in another.
          {"experts.gate_up_proj", "experts.gate_exps", "gate:"},
          {"experts.gate_up_proj", "experts.up_exps", "up:"}};
}

Tensor ExpertWeights::loaded_gate_up() const {
  return gate_up_parameter_->join().view(
      {config_.num_experts, 2 * config_.moe_intermediate_size / config_.tp_size, -1});
}

Tensor ExpertWeights::loaded_down() const {
  return down_parameter_->join().view({config_.num_experts, config_.hidden_size, -1});
}

void ExpertWeights::pack(const FinalizeOptions& options) {
  MSTAR_CHECK(gate_up_parameter_->is_complete() && down_parameter_->is_complete(),
              "experts were not loaded");
  for (int expert = 0; expert < config_.num_experts; ++expert) {
    gate_up_proj_.push_back(pack_pieces(*gate_up_parameter_, 2 * expert, 2 * expert + 2, options));
    down_proj_.push_back(pack_pieces(*down_parameter_, expert, expert + 1, options));
  }
  gate_up_parameter_->release();
  down_parameter_->release();
}

Tensor ExpertWeights::forward(Stream& stream,
                              const Tensor& x,
                              const Tensor& routing_weights,
                              const Tensor& selected_experts) const {
  const int64_t tokens = x.dim(0);
  Tensor out = stream.empty({tokens, config_.hidden_size}, x.dtype());
  if (tokens == 0) {
    return out;
  }
  const int64_t num_rows = selected_experts.num_elements();
  Tensor indptr = stream.empty({config_.num_experts + 1}, DType::kI32);
  Tensor rows = stream.empty({num_rows}, DType::kI32);
  Tensor slots = stream.empty({num_rows}, DType::kI32);
  ops::sort_by_expert(stream, selected_experts, indptr, rows, slots);
  Tensor sorted = stream.empty({num_rows, config_.hidden_size}, x.dtype());
  ops::gather_rows(stream, x, rows, sorted);
  const int64_t local = config_.moe_intermediate_size / config_.tp_size;
  Tensor gate_up = stream.empty({num_rows, 2 * local}, x.dtype());
  ops::grouped_linear(stream, sorted, gate_up_proj_, indptr, {}, gate_up);
  Tensor hidden = stream.empty({num_rows, local}, x.dtype());
  ops::gated_activation(stream, gate_up, Activation::kSilu, hidden);
  // f32: the weighted sum over the choices is rounded once.
  Tensor down = stream.empty({num_rows, config_.hidden_size}, DType::kF32);
  ops::grouped_linear(stream, hidden, down_proj_, indptr, {}, down);
  ops::combine_experts(stream, down, slots, routing_weights, out);
  return out;
}

SparseMoeBlock::SparseMoeBlock(const MoeConfig& config, std::unique_ptr<Router> router)
    : gate_(router_or_default(std::move(router), config)), experts_(experts_of(config)) {
  add_module("gate", *gate_);
  add_module("experts", experts_);
}

Tensor SparseMoeBlock::forward(Stream& stream, const Tensor& x, const Tensor& residual) const {
  Tensor out = forward(stream, x, Tensor(), nullptr);
  add_residual(stream, residual, out);
  return out;
}

Tensor SparseMoeBlock::forward(Stream& stream,
                               const Tensor& x,
                               const Tensor& router_states,
                               Tensor* router_states_next) const {
  const Tensor rows = x.as_rows();
  const Router::Output routed = gate_->forward(stream, rows, router_states);
  if (router_states_next != nullptr) {
    *router_states_next = routed.router_states_next;
  }
  return experts_.forward(stream, rows, routed.routing_weights, routed.selected_experts)
      .view(x.shape());
}

SparseMoeBlockWithSharedExpert::SparseMoeBlockWithSharedExpert(
    const MoeConfig& config,
    std::unique_ptr<FeedForward> shared_expert,
    std::unique_ptr<Router> router)
    : gate_(router_or_default(std::move(router), config)),
      experts_(experts_of(config)),
      shared_expert_(std::move(shared_expert)),
      shared_expert_gate_(config.hidden_size, 1) {
  add_module("gate", *gate_);
  add_module("experts", experts_);
  add_module("shared_expert", *shared_expert_);
  add_module("shared_expert_gate", shared_expert_gate_);
}

Tensor SparseMoeBlockWithSharedExpert::forward(Stream& stream,
                                               const Tensor& x,
                                               const Tensor& residual) const {
  Tensor out = forward(stream, x, Tensor(), nullptr);
  add_residual(stream, residual, out);
  return out;
}

Tensor SparseMoeBlockWithSharedExpert::forward(Stream& stream,
                                               const Tensor& x,
                                               const Tensor& router_states,
                                               Tensor* router_states_next) const {
  const Tensor rows = x.as_rows();
  const Router::Output routed = gate_->forward(stream, rows, router_states);
  if (router_states_next != nullptr) {
    *router_states_next = routed.router_states_next;
  }
  Tensor out = experts_.forward(stream, rows, routed.routing_weights, routed.selected_experts);
  const Tensor shared = shared_expert_->forward(stream, rows);
  const Tensor gate = linear_rows(stream, rows, shared_expert_gate_.weight(), {}, DType::kF32);
  ops::add_sigmoid_gated(stream, out, gate, shared, out);
  return out.view(x.shape());
}

Tensor dispatch_experts_fused(Stream& stream, const DispatchExperts& args) {
  const Tensor& x = args.hidden_states;
  Tensor out = stream.empty({x.dim(0), args.down_proj.dim(1)}, x.dtype());
  ops::fill(stream, 0.0F, out);
  stream.synchronize();
  const std::vector<int64_t> ids = args.selected_experts.to_ints();
  const std::vector<float> weights = args.routing_weights.to_floats();
  const int64_t k = args.selected_experts.dim(1);
  for (int64_t expert = 0; expert < args.num_experts; ++expert) {
    std::vector<int32_t> tokens;
    std::vector<float> factors;
    for (size_t index = 0; index < ids.size(); ++index) {
      if (ids[index] == expert) {
        tokens.push_back(static_cast<int32_t>(static_cast<int64_t>(index) / k));
        factors.push_back(weights[index]);
      }
    }
    if (tokens.empty()) {
      continue;
    }
    const auto count = static_cast<int64_t>(tokens.size());
    const Tensor rows = Tensor::from(tokens, {count});
    Tensor visiting = stream.empty({count, x.dim(1)}, x.dtype());
    ops::gather_rows(stream, x, rows, visiting);
    Tensor gate_up = stream.empty({count, args.gate_up_proj.dim(1)}, x.dtype());
    ops::matmul_nt(stream, visiting, args.gate_up_proj.select(0, expert), 1.0F, gate_up);
    const Tensor hidden = gated_activation(stream, gate_up, Activation::kSilu);
    Tensor down = stream.empty({count, args.down_proj.dim(1)}, x.dtype());
    ops::matmul_nt(stream, hidden, args.down_proj.select(0, expert), 1.0F, down);
    ops::scatter_add_rows(stream, down, Tensor::from(factors, {count}), rows, out);
    stream.synchronize();  // `rows` and the factors live on the host until here
  }
  return out;
}

}  // namespace mstar
