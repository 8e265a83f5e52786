#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/checkpoint/checkpoint_reader.h"

namespace mstar {

// Types of metadata values, by their number in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// One key of the file and where its value lies; values are decoded by who asks.
struct GgufEntry {
  std::string key;
  GgufType type = GgufType::kU8;
  GgufType element_type = GgufType::kU8;  // of an array
  uint64_t num_elements = 1;              // of an array
  std::span<const std::byte> value;       // the value, or the elements of an array
};

// What stands before the data of a GGUF file, checked against the file's own bytes. Entries point
// into those bytes.
struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment = 32;
  std::vector<GgufEntry> metadata;
  std::vector<TensorInfo> tensors;  // in the order of the file; shapes row-major
};

// Reads and checks a header of version 2 or 3, little-endian. `file` is the whole file. Throws
// Error(kInvalidArgument), naming `path` and the key or tensor, for counts and lengths beyond the
// file, unknown types, repeated names, shapes that overflow, misplaced, overlapping or missing
// data. Memory used is bounded by the bytes that are there.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& path);

// A GGUF file (format: github.com/ggml-org/ggml, docs/gguf.md). Tensor names and the order of
// rows are the file's own: a Llama file stores rope pairs of q and k next to each other.
class GgufFile : public CheckpointReader {
 public:
  static std::unique_ptr<GgufFile> open(const std::string& path);

  const std::vector<GgufEntry>& metadata() const { return header_.metadata; }

  bool has(std::string_view key) const { return find_entry(key) != nullptr; }

  // Values by key; any integer type reads as int, any float type as double. Nothing when the key
  // is absent; Error(kInvalidArgument) when its type is another.
  std::optional<int64_t> find_int(std::string_view key) const;
  std::optional<double> find_double(std::string_view key) const;  // integers too
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;

  // The same for keys that must be there.
  int64_t get_int(std::string_view key) const;
  double get_double(std::string_view key) const;
  std::string get_string(std::string_view key) const;

  // Arrays that must be there, such as a vocabulary ("tokenizer.ggml.tokens", ".scores",
  // ".token_type").
  std::vector<std::string> get_strings(std::string_view key) const;
  std::vector<float> get_floats(std::string_view key) const;
  std::vector<int64_t> get_ints(std::string_view key) const;

 private:
  GgufFile() = default;

  const GgufEntry* find_entry(std::string_view key) const;
  const GgufEntry& get_entry(std::string_view key) const;
  const GgufEntry& get_array(std::string_view key) const;
  [[noreturn]] void fail_type(const GgufEntry& entry, std::string_view expected) const;

  GgufHeader header_;  // its entries look into the mapping that the base class keeps
};

}  // namespace mstar
