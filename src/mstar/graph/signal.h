#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mstar/base/check.h"

namespace mstar::graph {

// A list of tensors somewhere else; readiness only moves and counts references to it.
using PayloadId = uint32_t;

enum class SignalKind : uint8_t {
  kAbsent,   // nothing: the producer made no such value this time
  kTrigger,  // "go", without data: the consumer makes its own start value
  kTensors,  // `payload`
  kLate,     // a speculative step's input that does not exist yet; `payload` is the index of the
             // running node's output that will bring it
};

struct Signal {
  SignalKind kind = SignalKind::kAbsent;
  PayloadId payload = 0;

  static Signal trigger() { return {SignalKind::kTrigger, 0}; }

  static Signal tensors(PayloadId payload) { return {SignalKind::kTensors, payload}; }

  static Signal late(uint32_t output_index) { return {SignalKind::kLate, output_index}; }

  bool is_present() const { return kind != SignalKind::kAbsent; }

  bool operator==(const Signal&) const = default;
};

// Keeps the payloads; every reference handed to WalkState or StreamBuffer is given back through
// release(), or passed on to the caller in a Route. One thread: the owner's.
class PayloadOwner {
 public:
  virtual ~PayloadOwner() = default;
  virtual void retain(PayloadId payload) = 0;
  virtual void release(PayloadId payload) = 0;
  // One payload with all tensors of `parts` in order. Takes over their references.
  virtual PayloadId concat(std::span<const PayloadId> parts) = 0;
};

// The usual PayloadOwner: a table of lists of T with free slots reused, so that steady state
// allocates nothing. Checks at destruction that every payload came back.
// One thread: the owner's.
template <typename T>
class PayloadTable final : public PayloadOwner {
 public:
  PayloadTable() = default;
  PayloadTable(const PayloadTable&) = delete;
  PayloadTable& operator=(const PayloadTable&) = delete;

  ~PayloadTable() override { MSTAR_CHECK(num_live_ == 0, num_live_, " payloads leaked"); }

  // A payload holding `items`, with one reference that is the caller's.
  PayloadId add(std::span<const T> items) {
    const PayloadId id = take_slot();
    slots_[id].items.assign(items.begin(), items.end());
    return id;
  }

  PayloadId add(T item) {
    const PayloadId id = take_slot();
    slots_[id].items.push_back(std::move(item));
    return id;
  }

  std::span<const T> get(PayloadId id) const {
    MSTAR_CHECK(id < slots_.size() && slots_[id].num_refs > 0, "payload ", id, " is not alive");
    return slots_[id].items;
  }

  void retain(PayloadId id) override {
    MSTAR_DCHECK(slots_[id].num_refs > 0, "payload ", id, " is not alive");
    ++slots_[id].num_refs;
  }

  void release(PayloadId id) override {
    MSTAR_CHECK(slots_[id].num_refs > 0, "payload ", id, " released twice");
    if (--slots_[id].num_refs > 0) return;
    slots_[id].items.clear();
    free_.push_back(id);
    --num_live_;
  }

  PayloadId concat(std::span<const PayloadId> parts) override {
    const PayloadId joined = take_slot();
    for (PayloadId part : parts) {
      const auto& items = slots_[part].items;
      slots_[joined].items.insert(slots_[joined].items.end(), items.begin(), items.end());
      release(part);
    }
    return joined;
  }

  size_t num_live() const { return num_live_; }

 private:
  struct Slot {
    std::vector<T> items;
    uint32_t num_refs = 0;
  };

  PayloadId take_slot() {
    ++num_live_;
    PayloadId id;
    if (free_.empty()) {
      id = static_cast<PayloadId>(slots_.size());
      slots_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    slots_[id].num_refs = 1;
    return id;
  }

  std::vector<Slot> slots_;
  std::vector<PayloadId> free_;
  size_t num_live_ = 0;
};

// When in a walk's run something happened: the pass of the request, then the iteration of each
// enclosing loop, outermost first. Orders emissions and recognises late messages.
struct LoopTime {
  uint32_t pass = 0;
  uint32_t depth = 0;
  std::array<uint32_t, 4> iterations = {};  // [depth]; the rest stays 0

  auto operator<=>(const LoopTime& other) const {
    if (const auto by_pass = pass <=> other.pass; by_pass != 0) return by_pass;
    if (const auto by_loop = iterations <=> other.iterations; by_loop != 0) return by_loop;
    return depth <=> other.depth;
  }

  bool operator==(const LoopTime&) const = default;

  // "2:7.3" = pass 2, outer iteration 7, inner iteration 3.
  std::string to_string() const;
};

}  // namespace mstar::graph
