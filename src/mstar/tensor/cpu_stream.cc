#include "mstar/tensor/cpu_stream.h"

#include <cstring>

#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kAlignment = 64;

}  // namespace

void CpuGraph::replay() {
  for (const Op& op : ops_) {
    if (op.num_tasks == 1) {
      op.run(op.params, 0);
    } else {
      pool_.run(op.num_tasks, op.run, op.params);
    }
  }
}

std::vector<std::string> CpuGraph::op_names() const {
  std::vector<std::string> names;
  for (const Op& op : ops_) {
    names.push_back(str_cat(op.name, " x", op.num_tasks));
  }
  return names;
}

void* CpuGraph::keep(const void* params, size_t size_bytes) {
  const size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  MSTAR_CHECK(rounded + kAlignment <= kChunkBytes, "params of ", size_bytes, " bytes");
  if (chunks_.empty() || chunk_used_ + rounded > kChunkBytes) {
    chunks_.push_back(std::make_unique<std::byte[]>(kChunkBytes));
    const auto address = reinterpret_cast<uintptr_t>(chunks_.back().get());
    chunk_used_ = (kAlignment - address % kAlignment) % kAlignment;
  }
  std::byte* kept = chunks_.back().get() + chunk_used_;
  chunk_used_ += rounded;
  std::memcpy(kept, params, size_bytes);
  return kept;
}

void CpuStream::begin_capture(std::shared_ptr<CachingAllocator> memory) {
  MSTAR_CHECK(!is_capturing(), "a capture is already open");
  if (memory == nullptr) {
    memory = std::make_shared<CachingAllocator>();
  }
  capture_.reset(new CpuGraph(pool_, std::move(memory)));
}

std::unique_ptr<CapturedGraph> CpuStream::end_capture() {
  MSTAR_CHECK(is_capturing(), "no capture is open");
  return std::move(capture_);
}

void CpuStream::enqueue_raw(const char* name,
                            int num_tasks,
                            const void* params,
                            size_t params_bytes,
                            void (*run)(void*, int)) {
  if (num_tasks <= 0) {
    return;
  }
  auto* mutable_params = const_cast<void*>(params);  // kernels take it back as const
  if (capture_ != nullptr) {
    mutable_params = capture_->keep(params, params_bytes);
    capture_->ops_.push_back({run, mutable_params, num_tasks, name});
  }
  if (num_tasks == 1) {
    run(mutable_params, 0);
  } else {
    pool_.run(num_tasks, run, mutable_params);
  }
}

}  // namespace mstar
