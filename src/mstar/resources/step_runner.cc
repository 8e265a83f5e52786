#include "mstar/resources/step_runner.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/resources/kv_cache.h"

namespace mstar {

namespace {

// Runs `phase` so that its errors say whose they are.
template <typename Phase>
decltype(auto) named(const Resource& resource, Phase&& phase) {
  try {
    return phase();
  } catch (const Error& error) {
    const std::string prefix = str_cat("[resource '", resource.key(), "'] ");
    const std::string message = error.what();
    if (message.starts_with(prefix)) {
      throw;
    }
    throw Error(error.code(), prefix + message);
  }
}

// Appends `resource` after everything it depends on.
void visit(Resource* resource,
           const std::vector<Resource*>& resources,
           std::vector<Resource*>& open,
           std::vector<Resource*>& done) {
  if (std::find(done.begin(), done.end(), resource) != done.end()) {
    return;
  }
  if (std::find(open.begin(), open.end(), resource) != open.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[step runner] resource '", resource->key(), "' depends on itself"));
  }
  open.push_back(resource);
  for (const ResourceId id : resource->depends_on()) {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= resources.size() || resources[index] == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[step runner] resource '",
                          resource->key(),
                          "' depends on resource ",
                          id,
                          ", which does not exist"));
    }
    visit(resources[index], resources, open, done);
  }
  open.pop_back();
  done.push_back(resource);
}

}  // namespace

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    runner_ = std::exchange(other.runner_, nullptr);
    step_ = other.step_;
    context_ = other.context_;
    outcome_ = std::move(other.outcome_);
  }
  return *this;
}

void Reservation::plan() {
  MSTAR_CHECK(runner_ != nullptr, "nothing is reserved");
  runner_->plan(*step_, *context_);
}

void Reservation::stage(Stream& stream) {
  MSTAR_CHECK(runner_ != nullptr, "nothing is reserved");
  runner_->stage(stream, *step_, *context_);
}

void Reservation::commit() {
  MSTAR_CHECK(runner_ != nullptr, "nothing is reserved");
  std::exchange(runner_, nullptr)->commit(*step_, *context_);
}

void Reservation::release() {
  if (runner_ != nullptr) {
    std::exchange(runner_, nullptr)->rollback(*step_, *context_);
  }
}

StepRunner::StepRunner(std::vector<Resource*> resources) {
  std::vector<Resource*> by_key;
  std::copy_if(
      resources.begin(), resources.end(), std::back_inserter(by_key), [](const Resource* resource) {
        return resource != nullptr;
      });
  std::sort(by_key.begin(), by_key.end(), [](const Resource* a, const Resource* b) {
    return a->key() < b->key();
  });
  std::vector<Resource*> open;
  for (Resource* resource : by_key) {
    visit(resource, resources, open, ordered_);
  }
  MSTAR_CHECK(ordered_.size() <= 64, "resources: ", ordered_.size());
}

const std::vector<Resource*>& StepRunner::participants(const SubmoduleStep& step) {
  uint64_t bits = 0;
  for (size_t index = 0; index < ordered_.size(); ++index) {
    if (step.uses(ordered_[index]->id())) {
      bits |= uint64_t{1} << index;
    }
  }
  const auto known = by_participants_.find(bits);
  if (known != by_participants_.end()) {
    return known->second;
  }
  std::vector<Resource*>& taking_part = by_participants_[bits];
  for (size_t index = 0; index < ordered_.size(); ++index) {
    if (((bits >> index) & 1) != 0) {
      taking_part.push_back(ordered_[index]);
    }
  }
  return taking_part;
}

AdmitOutcome StepRunner::admit(const SubmoduleStep& step, const StepContext& context) {
  const std::vector<Resource*>& resources = participants(step);
  size_t num_admitted = 0;
  const auto undo = [&] {
    while (num_admitted > 0) {
      resources[--num_admitted]->rollback(step, context);
    }
  };
  try {
    for (; num_admitted < resources.size(); ++num_admitted) {
      Resource& resource = *resources[num_admitted];
      AdmitOutcome outcome = named(resource, [&] { return resource.admit(step, context); });
      if (!outcome) {
        outcome.resource = resource.id();
        undo();
        return outcome;
      }
    }
  } catch (...) {
    undo();
    throw;
  }
  return {};
}

Reservation StepRunner::reserve(const SubmoduleStep& step, const StepContext& context) {
  Reservation reservation;
  reservation.outcome_ = admit(step, context);
  reservation.step_ = &step;
  reservation.context_ = &context;
  reservation.runner_ = reservation.outcome_ ? this : nullptr;
  return reservation;
}

void StepRunner::rollback(const SubmoduleStep& step, const StepContext& context) {
  const std::vector<Resource*>& resources = participants(step);
  std::for_each(resources.rbegin(), resources.rend(), [&](Resource* resource) {
    resource->rollback(step, context);
  });
}

void StepRunner::plan(const SubmoduleStep& step, const StepContext& context) {
  for (Resource* resource : participants(step)) {
    named(*resource, [&] { resource->plan(step, context); });
  }
}

void StepRunner::stage(Stream& stream, const SubmoduleStep& step, const StepContext& context) {
  // Not through the cache of participants: that one is the step loop's.
  for (Resource* resource : ordered_) {
    if (step.uses(resource->id())) {
      named(*resource, [&] { resource->stage(stream, context); });
    }
  }
}

void StepRunner::commit(const SubmoduleStep& step, const StepContext& context) {
  for (Resource* resource : participants(step)) {
    resource->commit(step, context);
  }
}

void StepRunner::discard(const SubmoduleStep& step,
                         const StepContext& context,
                         RequestHandle request,
                         bool poisoned) {
  const std::vector<Resource*>& resources = participants(step);
  std::for_each(resources.rbegin(), resources.rend(), [&](Resource* resource) {
    resource->discard(step, context, request, poisoned);
  });
}

void StepRunner::finish(const SubmoduleStep& step, const StepContext& context) {
  for (Resource* resource : participants(step)) {
    resource->finish(context);
  }
}

void StepRunner::reset_request(RequestHandle request, bool free) {
  for (Resource* resource : ordered_) {
    resource->reset_request(request, free);
  }
}

void StepRunner::ingest_request(RequestHandle request,
                                const std::vector<RequestResourceConfig>& configs) {
  static const RequestResourceConfig kDefault;
  size_t num_open = 0;
  try {
    for (; num_open < ordered_.size(); ++num_open) {
      Resource& resource = *ordered_[num_open];
      const auto index = static_cast<size_t>(resource.id());
      named(resource, [&] {
        resource.ingest_request(request, index < configs.size() ? configs[index] : kDefault);
      });
    }
  } catch (...) {
    while (num_open > 0) {
      ordered_[--num_open]->remove_request(request);
    }
    throw;
  }
}

void StepRunner::remove_request(RequestHandle request) {
  std::for_each(ordered_.rbegin(), ordered_.rend(), [&](Resource* resource) {
    resource->remove_request(request);
  });
}

PublishedInfo StepRunner::publish(RequestHandle request) const {
  PublishedInfo info;
  for (const Resource* resource : ordered_) {
    resource->publish(request, info);
  }
  return info;
}

int64_t StepRunner::apply_cached_prefix(ResourceId kv, RequestHandle request, LabelId label) {
  const auto found = std::find_if(ordered_.begin(), ordered_.end(), [kv](const Resource* resource) {
    return resource->id() == kv;
  });
  auto* cache = found == ordered_.end() ? nullptr : dynamic_cast<KvCache*>(*found);
  MSTAR_CHECK(cache != nullptr, "resource ", kv, " is not a KV cache");
  if (!std::all_of(ordered_.begin(), ordered_.end(), [](const Resource* resource) {
        return resource->prefix_skip_safe();
      })) {
    return 0;
  }
  const int64_t num_tokens = cache->apply_cached_prefix(request, label);
  if (num_tokens > 0) {
    for (Resource* resource : ordered_) {
      resource->skip_prefix(request, label, num_tokens);
    }
  }
  return num_tokens;
}

}  // namespace mstar
