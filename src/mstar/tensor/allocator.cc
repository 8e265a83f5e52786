#include "mstar/tensor/allocator.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>

#include "mstar/base/check.h"
#include "mstar/base/error.h"

namespace mstar {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Eight sizes for each power of two from 2^9 up; everything smaller is class 0.
constexpr int kSmallestBits = 9;

int size_class(size_t size_bytes) {
  if (size_bytes <= (size_t{1} << kSmallestBits)) {
    return 0;
  }
  const int bits = std::bit_width(size_bytes - 1) - 1;  // 2^bits < size <= 2^(bits+1)
  const size_t step = size_t{1} << (bits - 3);
  const size_t above = size_bytes - (size_t{1} << bits);
  return (bits - kSmallestBits) * 8 + static_cast<int>((above + step - 1) / step);
}

size_t class_bytes(int size_class) {
  if (size_class == 0) {
    return size_t{1} << kSmallestBits;
  }
  const int bits = kSmallestBits + (size_class - 1) / 8;
  return (size_t{1} << bits) +
         static_cast<size_t>((size_class - 1) % 8 + 1) * (size_t{1} << (bits - 3));
}

}  // namespace

Storage* SystemAllocator::allocate(size_t size_bytes) {
  const bool huge = size_bytes >= kHugePage;
  const size_t size = round_up(size_bytes == 0 ? 1 : size_bytes, kAlignment);
  void* data =
      std::aligned_alloc(huge ? kHugePage : kAlignment, huge ? round_up(size, kHugePage) : size);
  if (data == nullptr) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[allocator] no memory for ", size_bytes, " bytes"));
  }
  if (huge) {
    ::madvise(data, round_up(size, kHugePage), MADV_HUGEPAGE);  // only a hint: may fail
  }
  return new Storage(static_cast<std::byte*>(data), size, this);
}

void SystemAllocator::recycle(Storage* storage) noexcept {
  std::free(storage->data());
  delete storage;
}

SystemAllocator& system_allocator() {
  static SystemAllocator* allocator = new SystemAllocator;  // outlives every static tensor
  return *allocator;
}

CachingAllocator::~CachingAllocator() {
  trim();
  MSTAR_CHECK(stats_.bytes_held == 0, "bytes still in use: ", stats_.bytes_held);
}

Storage* CachingAllocator::allocate(size_t size_bytes) {
  const int index = size_class(size_bytes);
  MSTAR_CHECK(index < kNumClasses, "size_bytes=", size_bytes);
  const std::lock_guard lock(mutex_);
  auto& free = free_[static_cast<size_t>(index)];
  Storage* storage = nullptr;
  if (!free.empty()) {
    storage = free.back();
    free.pop_back();
    storage->references_.store(1, std::memory_order_relaxed);
  } else {
    storage = upstream_.allocate(class_bytes(index));
    storage->owner_ = this;
    storage->size_bytes_ = class_bytes(index);
    ++stats_.num_upstream_allocations;
    stats_.bytes_held += storage->size_bytes_;
    free.reserve(static_cast<size_t>(++num_live_[static_cast<size_t>(index)]));
  }
  stats_.bytes_in_use += storage->size_bytes_;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  return storage;
}

void CachingAllocator::recycle(Storage* storage) noexcept {
  const std::lock_guard lock(mutex_);
  stats_.bytes_in_use -= storage->size_bytes_;
  free_[static_cast<size_t>(size_class(storage->size_bytes_))].push_back(storage);
}

void CachingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  for (size_t index = 0; index < free_.size(); ++index) {
    for (Storage* storage : free_[index]) {
      stats_.bytes_held -= storage->size_bytes_;
      storage->owner_ = &upstream_;
      upstream_.recycle(storage);
    }
    num_live_[index] -= static_cast<int32_t>(free_[index].size());
    free_[index].clear();
  }
}

CachingAllocator::Stats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace mstar
