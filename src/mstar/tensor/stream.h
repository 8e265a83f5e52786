#pragma once

#include <memory>
#include <type_traits>

#include "mstar/tensor/allocator.h"
#include "mstar/tensor/device.h"
#include "mstar/tensor/tensor.h"

namespace mstar {

// What a capturing stream recorded. Owns the temporaries that the recorded ops use; everything
// else they touch (weights, static inputs, index arrays) belongs to the caller and must stay
// where it is.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;

  // Runs the recorded ops again on the data now behind the same addresses: no allocation, no
  // shape check, no dispatch; the results are bit-equal to an eager run. On the stream that
  // recorded it, and not while that stream runs anything else.
  virtual void replay() = 0;

  virtual int num_ops() const = 0;
};

// An ordered queue of ops on one device. Ops of kernels/ops take a stream first and enqueue
// themselves on it; what they enqueue runs in order. Temporaries come from the stream's own
// allocator: memory freed by one op may be reused by the next, because they never overlap.
//
// One thread at a time. Results are visible to the host after synchronize().
class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  virtual Device device() const = 0;

  // Temporaries of the ops enqueued here. While capturing: the graph's own.
  virtual Allocator& allocator() = 0;

  virtual void synchronize() = 0;

  // From here on ops run and are recorded too. `memory` lets several graphs that never run at
  // the same time share their temporaries; null gives the graph memory of its own.
  virtual void begin_capture(std::shared_ptr<CachingAllocator> memory = nullptr) = 0;
  virtual std::unique_ptr<CapturedGraph> end_capture() = 0;
  virtual bool is_capturing() const = 0;

  // Uninitialized temporary on this stream's device.
  Tensor empty(const Shape& shape, DType dtype) { return Tensor::empty(shape, dtype, allocator()); }
};

}  // namespace mstar
