#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "mstar/tensor/allocator.h"

namespace mstar {

// A whole file mapped read-only. Tensors that look into it share its storage, so the mapping
// lives as long as the last of them; writing through one faults. Thread-safe after open().
class MappedFile {
 public:
  MappedFile() = default;

  // Throws Error(kNotFound) when the file cannot be opened, Error(kInvalidArgument) when it is
  // not a regular file.
  static MappedFile open(const std::string& path);

  const std::string& path() const { return path_; }

  std::span<const std::byte> bytes() const;

  const StoragePtr& storage() const { return storage_; }

  // Tells the system that the file will be read soon, front to back.
  void prefetch() const;

  // Takes the file's pages out of this process's resident memory. Whoever reads them again gets
  // them back from the page cache or the disk.
  void release_pages() const;

 private:
  std::string path_;
  size_t size_bytes_ = 0;
  StoragePtr storage_;  // null for an empty file, which cannot be mapped
};

}  // namespace mstar
