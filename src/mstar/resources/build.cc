#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/resources/attention_plan.h"
#include "mstar/resources/dense_attention.h"
#include "mstar/resources/kv_cache.h"
#include "mstar/resources/positions.h"
#include "mstar/resources/resource.h"
#include "mstar/resources/sampling.h"

namespace mstar {

namespace {

struct Place {
  ResourceId id;
  const std::string& key;
  const ResourceBuildInfo& info;
};

// The KV resource of that key; null for an empty key.
KvCache* find_kv(const Place& place, const std::string& kv_key) {
  if (kv_key.empty()) {
    return nullptr;
  }
  const int32_t id =
      place.info.resource_names == nullptr ? -1 : place.info.resource_names->find(kv_key);
  Resource* found = id < 0 || place.info.resources == nullptr ||
                            static_cast<size_t>(id) >= place.info.resources->size()
                        ? nullptr
                        : (*place.info.resources)[static_cast<size_t>(id)];
  auto* kv = dynamic_cast<KvCache*>(found);
  if (kv == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[resource '",
                        place.key,
                        "'] names '",
                        kv_key,
                        "' as its KV cache; there is no such KV resource"));
  }
  return kv;
}

std::unique_ptr<Resource> build(const Place& place, const KVSpec& spec) {
  return std::make_unique<KvCache>(place.id, place.key, spec, place.info);
}

std::unique_ptr<Resource> build(const Place& place, const AttentionSpec& spec) {
  KvCache* kv = find_kv(place, spec.kv);
  if ((spec.kind == AttentionKind::kRagged) != (kv == nullptr)) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[resource '",
                        place.key,
                        "'] ",
                        kv == nullptr ? "needs the key of a KV resource"
                                      : "keeps nothing: leave the KV resource out"));
  }
  const auto& [id, key, info] = place;
  switch (spec.kind) {
    case AttentionKind::kPaged: return std::make_unique<PagedAttention>(id, key, spec, info, kv);
    case AttentionKind::kDense: return std::make_unique<DenseAttention>(id, key, spec, info, kv);
    case AttentionKind::kRagged: return std::make_unique<RaggedAttention>(id, key, spec, info, kv);
    case AttentionKind::kCross:
      return std::make_unique<CrossAttentionResource>(id, key, spec, info, kv);
  }
  return nullptr;
}

std::unique_ptr<Resource> build(const Place& place, const PositionSpec& spec) {
  const bool three_axes = spec.rope.layout != RopeConfig::Layout::kOneAxis;
  const int64_t rotary_dim = spec.rope.rotary_dim > 0 ? spec.rope.rotary_dim : spec.rope.head_dim;
  if ((spec.num_axes != 1 && spec.num_axes != 3) ||
      (spec.use_rope && (rotary_dim <= 0 || rotary_dim % 2 != 0 ||
                         rotary_dim > spec.rope.head_dim || (three_axes && spec.num_axes != 3)))) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[resource '",
                        place.key,
                        "'] ",
                        spec.num_axes,
                        " axes, rotary dim ",
                        rotary_dim,
                        " of head dim ",
                        spec.rope.head_dim,
                        "; expected 1 or 3 axes as the rope layout has, an even rotary dim"));
  }
  return std::make_unique<Positions>(
      place.id, place.key, spec, place.info, find_kv(place, spec.kv));
}

std::unique_ptr<Resource> build(const Place& place, const SamplerSpec& spec) {
  return std::make_unique<Sampling>(place.id, place.key, spec, place.info);
}

}  // namespace

std::unique_ptr<Resource> build_resource(ResourceId id,
                                         const std::string& key,
                                         const ResourceSpec& spec,
                                         const ResourceBuildInfo& info) {
  return std::visit([&](const auto& given) { return build(Place{id, key, info}, given); }, spec);
}

}  // namespace mstar
