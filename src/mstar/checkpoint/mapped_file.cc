#include "mstar/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

// Owner of mapped storages: gives the pages back when the last tensor lets go.
class MappingOwner : public Allocator {
 public:
  Storage* allocate(size_t) override {
    MSTAR_CHECK(false, "a mapping is made by MappedFile::open");
    return nullptr;
  }

  void recycle(Storage* storage) noexcept override {
    munmap(storage->data(), storage->size_bytes());
    delete storage;
  }
};

// Never destroyed: tensors in static objects may outlive main().
MappingOwner& mapping_owner() {
  static auto* owner = new MappingOwner;
  return *owner;
}

class FileDescriptor {
 public:
  explicit FileDescriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

  ~FileDescriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }

 private:
  int fd_;
};

// Opens a regular file and says how long it is.
size_t checked_size(const FileDescriptor& file, const std::string& path) {
  if (file.get() < 0) {
    throw Error(ErrorCode::kNotFound,
                str_cat("[", path, "] cannot be opened: ", std::strerror(errno)));
  }

  struct stat status {};

  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[", path, "] is not a regular file"));
  }
  return static_cast<size_t>(status.st_size);
}

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
  const FileDescriptor file(path);
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_bytes_ = checked_size(file, path);
  if (mapped.size_bytes_ > 0) {
    void* address = mmap(nullptr, mapped.size_bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) {
      throw Error(ErrorCode::kResourceExhausted,
                  str_cat("[", path, "] cannot be mapped: ", std::strerror(errno)));
    }
    mapped.storage_ = StoragePtr(
        new Storage(static_cast<std::byte*>(address), mapped.size_bytes_, &mapping_owner()));
  }
  return mapped;
}

std::span<const std::byte> MappedFile::bytes() const {
  return storage_ ? std::span<const std::byte>(storage_->data(), size_bytes_)
                  : std::span<const std::byte>();
}

void MappedFile::prefetch() const {
  if (storage_) {
    madvise(storage_->data(), size_bytes_, MADV_WILLNEED);
  }
}

void MappedFile::release_pages() const {
  if (storage_) {
    madvise(storage_->data(), size_bytes_, MADV_DONTNEED);
  }
}

}  // namespace mstar
