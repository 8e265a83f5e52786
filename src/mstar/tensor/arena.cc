#include "mstar/tensor/arena.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "mstar/base/check.h"
#include "mstar/base/error.h"

namespace mstar {

namespace {

constexpr size_t kAlignment = 64;

}  // namespace

// At the beginning of its memory, which is aligned to its size: a block's address tells its chunk.
struct alignas(kAlignment) ArenaAllocator::Chunk {
  size_t used = sizeof(Chunk);
  size_t num_live = 0;  // blocks

  static Chunk* of(const Storage& storage) {
    return reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(storage.data()) &
                                    ~uintptr_t{kChunkBytes - 1});
  }
};

ArenaAllocator::~ArenaAllocator() {
  MSTAR_CHECK(current_ == nullptr || (num_chunks_ == 1 && current_->num_live == 0),
              "blocks still in use");
  std::free(current_);
}

Storage* ArenaAllocator::allocate(size_t size_bytes) {
  if (size_bytes > kMostBytes) {
    return system_allocator().allocate(size_bytes);
  }
  const size_t size = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard lock(mutex_);
  if (current_ == nullptr || current_->used + size > kChunkBytes) {
    void* memory = std::aligned_alloc(kChunkBytes, kChunkBytes);
    if (memory == nullptr) {
      throw Error(ErrorCode::kResourceExhausted, "[allocator] no memory for weights");
    }
    ::madvise(memory, kChunkBytes, MADV_HUGEPAGE);  // only a hint: may fail
    if (current_ != nullptr && current_->num_live == 0) {
      std::free(current_);
      --num_chunks_;
    }
    current_ = new (memory) Chunk;
    ++num_chunks_;
  }
  auto* storage = new Storage(reinterpret_cast<std::byte*>(current_) + current_->used, size, this);
  current_->used += size;
  ++current_->num_live;
  return storage;
}

void ArenaAllocator::recycle(Storage* storage) noexcept {
  const std::lock_guard lock(mutex_);
  Chunk* chunk = Chunk::of(*storage);
  delete storage;
  if (--chunk->num_live > 0) {
    return;
  }
  if (chunk == current_) {
    chunk->used = sizeof(Chunk);
  } else {
    std::free(chunk);
    --num_chunks_;
  }
}

size_t ArenaAllocator::bytes_held() const {
  const std::lock_guard lock(mutex_);
  return num_chunks_ * kChunkBytes;
}

ArenaAllocator& weight_arena() {
  static ArenaAllocator* arena = new ArenaAllocator;  // outlives every static tensor
  return *arena;
}

}  // namespace mstar
