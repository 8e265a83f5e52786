#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mstar/checkpoint/mapped_file.h"
#include "mstar/tensor/tensor.h"

namespace mstar {

// Where one tensor of a checkpoint lies.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;                // row-major; matrices are [out_features, in_features]
  uint64_t offset_bytes = 0;  // from the start of its file
  uint64_t size_bytes = 0;
  int file = 0;  // index into CheckpointReader::file_paths()
};

// Named tensors of a checkpoint: one file or several, safetensors or GGUF. Opening reads and
// checks the headers completely; tensor data is touched only by who reads it.
// Thread-safe: immutable once open.
class CheckpointReader {
 public:
  virtual ~CheckpointReader() = default;

  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  // In file order, then in order of their place in the file.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // Null when there is none of that name.
  const TensorInfo* find(std::string_view name) const;

  // Throws Error(kInvalidArgument) naming the file and the nearest known names.
  const TensorInfo& info(std::string_view name) const;

  // The tensor's values: a read-only view of the mapped file where its place is aligned for the
  // type, else a copy made now. Either outlives the reader.
  Tensor get(const TensorInfo& info) const;

  Tensor get(std::string_view name) const { return get(info(name)); }

  const std::vector<std::string>& file_paths() const { return file_paths_; }

  const std::string& path_of(const TensorInfo& info) const {
    return file_paths_[static_cast<size_t>(info.file)];
  }

  // Once weights are packed: the files' pages leave resident memory. Views stay valid; what is
  // read through them comes back.
  void release_pages() const;

  // Bytes of all tensors together.
  uint64_t total_bytes() const;

 protected:
  CheckpointReader() = default;

  // Adds a file whose tensors lie inside its bytes (already checked). Throws
  // Error(kInvalidArgument) for a name that an earlier file has.
  void add_file(MappedFile file, std::vector<TensorInfo> tensors);

 private:
  std::vector<MappedFile> files_;
  std::vector<std::string> file_paths_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // into tensors_; rebuilt by add_file
};

// Opens what `path` names: a .safetensors file, an index (*.safetensors.index.json) with its
// shards, a .gguf file, or a folder that holds exactly one of them.
std::unique_ptr<CheckpointReader> open_checkpoint(const std::string& path);

// number of elements * element size, or nothing when it does not fit or a dim is negative. For
// headers: nothing in them can be trusted.
bool checked_size_bytes(std::span<const int64_t> dims, DType dtype, uint64_t& size_bytes);

}  // namespace mstar
