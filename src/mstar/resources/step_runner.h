#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mstar/resources/resource.h"

namespace mstar {

class StepRunner;

// An admitted step that is not committed yet. Rolls back when destroyed: pages set aside return,
// nothing has grown. Step and context must outlive it. Move-only.
class Reservation {
 public:
  Reservation() = default;

  Reservation(Reservation&& other) noexcept
      : runner_(std::exchange(other.runner_, nullptr)),
        step_(other.step_),
        context_(other.context_),
        outcome_(std::move(other.outcome_)) {}

  Reservation& operator=(Reservation&& other) noexcept;

  ~Reservation() { release(); }

  // False when a resource refused; outcome() says who and why.
  explicit operator bool() const { return runner_ != nullptr; }

  const AdmitOutcome& outcome() const { return outcome_; }

  // The phases after admit, in this order. commit() ends the reservation.
  void plan();
  void stage(Stream& stream);
  void commit();

  // Rolls back now.
  void release();

 private:
  friend class StepRunner;

  StepRunner* runner_ = nullptr;
  const SubmoduleStep* step_ = nullptr;
  const StepContext* context_ = nullptr;
  AdmitOutcome outcome_;
};

// Drives the resources of one engine through a step's phases, in the order of their dependencies
// (ties: by key). Only resources with an entry in the step take part. Owns nothing of them. Methods
// are the step loop's, except stage(), which is the executor's. An Error that a resource throws
// comes out with the resource's key in front.
class StepRunner {
 public:
  // `resources` by id, null where there is none. Throws Error(kInvalidArgument) on a dependency
  // that does not exist and on a cycle.
  explicit StepRunner(std::vector<Resource*> resources);

  // All resources, dependencies first.
  const std::vector<Resource*>& ordered() const { return ordered_; }

  // admit() of all resources, or of none: when one refuses or throws, the earlier ones are rolled
  // back.
  AdmitOutcome admit(const SubmoduleStep& step, const StepContext& context);

  // The same with the way back attached.
  Reservation reserve(const SubmoduleStep& step, const StepContext& context);

  void rollback(const SubmoduleStep& step, const StepContext& context);
  void plan(const SubmoduleStep& step, const StepContext& context);
  void stage(Stream& stream, const SubmoduleStep& step, const StepContext& context);
  void commit(const SubmoduleStep& step, const StepContext& context);

  // Takes one request's part of a committed step back (Resource::discard), last resource first.
  void discard(const SubmoduleStep& step,
               const StepContext& context,
               RequestHandle request,
               bool poisoned = false);

  // The step's forward has run to its end: what its slot kept alive for it may go.
  void finish(const SubmoduleStep& step, const StepContext& context);

  void reset_request(RequestHandle request, bool free);

  // In all resources or, when one throws, in none. `configs` by resource id; missing ones take the
  // defaults.
  void ingest_request(RequestHandle request, const std::vector<RequestResourceConfig>& configs);
  void remove_request(RequestHandle request);
  PublishedInfo publish(RequestHandle request) const;

  // Starts the stream behind the cached part of its prompt: `kv` takes the pages, the other
  // resources skip those tokens. Returns how many; 0 when a resource cannot skip.
  int64_t apply_cached_prefix(ResourceId kv, RequestHandle request, LabelId label);

 private:
  const std::vector<Resource*>& participants(const SubmoduleStep& step);

  std::vector<Resource*> ordered_;
  std::unordered_map<uint64_t, std::vector<Resource*>> by_participants_;  // bit i: ordered_[i]
};

}  // namespace mstar
