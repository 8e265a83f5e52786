#include "mstar/cli/golden/resource_rig.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::golden {

ResourceRig::ResourceRig(const Specs& specs, int num_requests) : num_requests_(num_requests) {
  for (const auto& [key, spec] : specs) {
    keys_.intern(key);
  }
  by_id_.resize(specs.size(), nullptr);
  ResourceBuildInfo info;
  info.labels = &labels_;
  info.resources = &by_id_;
  info.resource_names = &keys_;
  info.max_num_requests = num_requests;
  for (const auto& [key, spec] : specs) {
    const ResourceId resource_id = keys_.get(key);
    owned_.push_back(build_resource(resource_id, key, spec, info));
    by_id_[static_cast<size_t>(resource_id)] = owned_.back().get();
    map_[key] = owned_.back().get();
  }
  runner_ = std::make_unique<StepRunner>(by_id_);
  for (RequestHandle request = 0; request < num_requests; ++request) {
    runner_->ingest_request(request, {});
  }
}

ResourceRig::~ResourceRig() {
  for (RequestHandle request = 0; request < num_requests_; ++request) {
    runner_->remove_request(request);
  }
  runner_.reset();
  while (!owned_.empty()) {  // later ones may read earlier ones
    owned_.pop_back();
  }
}

void ResourceRig::run(Stream& stream,
                      const SubmoduleStep& step,
                      const std::function<void(const AttentionContext&)>& forward) {
  StepContext context;
  for (RequestHandle request = 0; request < num_requests_; ++request) {
    context.request_ids.push_back(request);
  }
  context.num_real = num_requests_;
  Reservation reservation = runner_->reserve(step, context);
  if (!reservation) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[golden] a step was refused: ",
                        to_string(reservation.outcome().reason),
                        " ",
                        reservation.outcome().message));
  }
  reservation.plan();
  reservation.stage(stream);
  forward({&context, kMainLabel, 0});
  stream.synchronize();
  reservation.commit();
  runner_->finish(step, context);
}

KVSpec small_kv(int64_t num_kv_heads, int64_t head_dim, DType dtype, int64_t page_size) {
  return {.num_layers = 1,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .page_size = page_size,
          .max_num_pages = 128,
          .dtype = dtype};
}

}  // namespace mstar::golden
