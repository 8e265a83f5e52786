#include "mstar/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/gguf.h"
#include "mstar/checkpoint/safetensors.h"

namespace mstar {

namespace {

constexpr size_t kMaxNamesToSearch = 4096;  // nearest_name is quadratic in the word

size_t alignment_of(DType dtype) {
  return is_quantized(dtype) ? 2 : static_cast<size_t>(element_bytes(dtype));
}

}  // namespace

bool checked_size_bytes(std::span<const int64_t> dims, DType dtype, uint64_t& size_bytes) {
  const DTypeInfo& type = info(dtype);
  uint64_t product = 1;
  bool has_zero = false;
  for (const int64_t dim : dims) {
    if (dim < 0) {
      return false;
    }
    // A zero dim makes the size 0 but must not hide an overflow of the others: strides use them.
    has_zero = has_zero || dim == 0;
    if (__builtin_mul_overflow(
            product, static_cast<uint64_t>(std::max<int64_t>(dim, 1)), &product) ||
        product > static_cast<uint64_t>(INT64_MAX) / 16) {
      return false;
    }
  }
  if (type.block_size > 1 && (dims.empty() || dims.back() % type.block_size != 0)) {
    return false;
  }
  size_bytes = has_zero ? 0
                        : product / static_cast<uint64_t>(type.block_size) *
                              static_cast<uint64_t>(type.block_bytes);
  return true;
}

const TensorInfo* CheckpointReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& CheckpointReader::info(std::string_view name) const {
  if (const TensorInfo* found = find(name)) {
    return *found;
  }
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors_) {
    if (names.size() < kMaxNamesToSearch) {
      names.push_back(tensor.name);
    }
  }
  const std::string nearest = nearest_name(name, names);
  throw Error(ErrorCode::kInvalidArgument,
              str_cat("[",
                      file_paths_.empty() ? std::string("checkpoint") : file_paths_.front(),
                      "] has no tensor \"",
                      name,
                      "\"",
                      nearest.empty() ? "" : str_cat("; the nearest is \"", nearest, "\"")));
}

Tensor CheckpointReader::get(const TensorInfo& info) const {
  const MappedFile& file = files_[static_cast<size_t>(info.file)];
  if (info.size_bytes == 0) {
    return Tensor::empty(info.shape, info.dtype);
  }
  auto* data = const_cast<std::byte*>(file.bytes().data()) + info.offset_bytes;
  if (reinterpret_cast<uintptr_t>(data) % alignment_of(info.dtype) == 0) {
    return Tensor::wrap(file.storage(), data, info.shape, info.dtype);
  }
  Tensor copied = Tensor::empty(info.shape, info.dtype);
  std::memcpy(copied.bytes(), data, info.size_bytes);
  return copied;
}

void CheckpointReader::release_pages() const {
  for (const MappedFile& file : files_) {
    file.release_pages();
  }
}

uint64_t CheckpointReader::total_bytes() const {
  uint64_t total = 0;
  for (const TensorInfo& tensor : tensors_) {
    total += tensor.size_bytes;
  }
  return total;
}

void CheckpointReader::add_file(MappedFile file, std::vector<TensorInfo> tensors) {
  const int index = static_cast<int>(files_.size());
  file_paths_.push_back(file.path());
  files_.push_back(std::move(file));
  for (TensorInfo& tensor : tensors) {
    tensor.file = index;
    tensors_.push_back(std::move(tensor));
  }
  by_name_.clear();
  by_name_.reserve(tensors_.size());
  for (size_t position = 0; position < tensors_.size(); ++position) {
    const auto [other, added] = by_name_.emplace(tensors_[position].name, position);
    if (!added) {
      throw Error(ErrorCode::kInvalidArgument,
                  str_cat("[",
                          path_of(tensors_[position]),
                          "] tensor \"",
                          tensors_[position].name,
                          "\" is already in ",
                          path_of(tensors_[other->second])));
    }
  }
}

std::unique_ptr<CheckpointReader> open_checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  const auto open_file = [](const std::string& file) -> std::unique_ptr<CheckpointReader> {
    if (file.ends_with(".gguf")) {
      return GgufFile::open(file);
    }
    if (file.ends_with(".index.json")) {
      return SafetensorsFile::open_sharded(file);
    }
    return SafetensorsFile::open(file);
  };
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    return open_file(path);
  }
  std::vector<std::string> indices;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors.index.json")) {
      indices.push_back(entry.path().string());
    } else if (name.ends_with(".safetensors") || name.ends_with(".gguf")) {
      files.push_back(entry.path().string());
    }
  }
  if (indices.size() == 1) {
    return open_file(indices.front());
  }
  if (indices.empty() && files.size() == 1) {
    return open_file(files.front());
  }
  throw Error(files.empty() ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
              str_cat("[",
                      path,
                      "] found ",
                      files.size(),
                      " weight files and ",
                      indices.size(),
                      " indices, expected one index (*.safetensors.index.json) or one "
                      ".safetensors or .gguf file; name the file itself"));
}

}  // namespace mstar
