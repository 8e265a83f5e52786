#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"

namespace mstar {

// What the header of a safetensors file says, checked against the file's own bytes.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by place in the file
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Reads and checks a header. `file` is the whole file. Throws Error(kInvalidArgument), naming
// `path` and the tensor, for a header that does not fit the file, is not such JSON, has unknown
// types, shapes that overflow or disagree with their bytes, and for bytes that overlap, belong to
// no tensor, or follow the last one. Memory used is bounded by the bytes that are there.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path);

// One safetensors file, or a set of shards joined by an index
// (format: github.com/huggingface/safetensors).
class SafetensorsFile : public CheckpointReader {
 public:
  static std::unique_ptr<SafetensorsFile> open(const std::string& path);

  // `index_path` is a *.safetensors.index.json; its weight_map must list exactly the tensors of
  // the files it names, which lie beside it.
  static std::unique_ptr<SafetensorsFile> open_sharded(const std::string& index_path);

  // The string map "__metadata__" of the (first) file.
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }

 private:
  SafetensorsFile() = default;

  void add(const std::string& path);

  std::vector<std::pair<std::string, std::string>> metadata_;
};

// Writes contiguous tensors of plain types as one file, in the given order. For tests, tools and
// random-weight checkpoints.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata = {});

}  // namespace mstar
