#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/resources/resource.h"
#include "mstar/resources/step_runner.h"
#include "mstar/tensor/cpu_stream.h"

namespace mstar::testing {

// Resources built from specs as the engine does it, a stream, and steps run through all phases.
// For tests.
class Rig {
 public:
  explicit Rig(const std::vector<std::pair<std::string, ResourceSpec>>& specs,
               int32_t num_slots = 2)
      : stream_(pool_) {
    for (const auto& [key, spec] : specs) {
      names_.intern(key);
    }
    pointers_.resize(specs.size());
    const ResourceBuildInfo info{.labels = &labels,
                                 .resources = &pointers_,
                                 .resource_names = &names_,
                                 .num_slots = num_slots,
                                 .max_num_requests = 16};
    for (const auto& [key, spec] : specs) {
      const ResourceId id = names_.get(key);
      owned_.push_back(build_resource(id, key, spec, info));
      pointers_[static_cast<size_t>(id)] = owned_.back().get();
    }
    runner_ = std::make_unique<StepRunner>(pointers_);
  }

  template <typename T>
  T& get(const std::string& key) {
    return dynamic_cast<T&>(*pointers_[static_cast<size_t>(names_.get(key))]);
  }

  ResourceId id(const std::string& key) const { return names_.get(key); }

  StepRunner& runner() { return *runner_; }

  CpuStream& stream() { return stream_; }

  // All phases around `forward`; false when a resource refuses.
  template <typename Forward>
  bool run(const SubmoduleStep& step, const StepContext& context, Forward forward) {
    Reservation reservation = runner_->reserve(step, context);
    if (!reservation) {
      last_refusal = reservation.outcome();
      return false;
    }
    reservation.plan();
    reservation.stage(stream_);
    forward(context);
    reservation.commit();
    runner_->finish(step, context);
    return true;
  }

  bool run(const SubmoduleStep& step) {
    return run(step, StepContext{}, [](const StepContext&) {});
  }

  LabelTable labels;
  AdmitOutcome last_refusal;

 private:
  ThreadPool pool_{1};
  CpuStream stream_;
  NameTable names_{"resource"};
  std::vector<Resource*> pointers_;
  std::vector<std::unique_ptr<Resource>> owned_;
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace mstar::testing
