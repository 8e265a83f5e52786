#include "mstar/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"

namespace mstar {

namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int kMaxDepth = 4;                       // {name: {shape: [..]}} needs three

struct NamedDType {
  const char* name;
  DType dtype;
};

constexpr std::array<NamedDType, 9> kDTypes = {{{"F32", DType::kF32},
                                                {"BF16", DType::kBF16},
                                                {"F16", DType::kF16},
                                                {"I8", DType::kI8},
                                                {"U8", DType::kU8},
                                                {"I16", DType::kI16},
                                                {"I32", DType::kI32},
                                                {"I64", DType::kI64},
                                                {"BOOL", DType::kBool}}};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", path, "] ", what));
}

[[noreturn]] void fail(const std::string& path, const std::string& tensor, std::string_view what) {
  fail(path, str_cat("tensor \"", tensor, "\": ", what));
}

uint64_t load_u64(const std::byte* bytes) {
  uint64_t value = 0;
  for (int index = 7; index >= 0; --index) {
    value = value << 8 | static_cast<uint64_t>(bytes[index]);
  }
  return value;
}

// The header's JSON text; checks the length in front of it.
std::string_view header_text(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLengthBytes) {
    fail(path,
         str_cat("has ",
                 file.size(),
                 " bytes, expected at least the 8 of a header length; the "
                 "file is cut off"));
  }
  const uint64_t length = load_u64(file.data());
  if (length > file.size() - kLengthBytes) {
    fail(path,
         str_cat("header length is ",
                 length,
                 ", but only ",
                 file.size() - kLengthBytes,
                 " bytes follow; the file is cut off or not safetensors"));
  }
  if (length > kMaxHeaderBytes) {
    fail(path, str_cat("header length is ", length, ", expected at most ", kMaxHeaderBytes));
  }
  const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (length == 0 || text[0] != '{') {
    fail(path, "header does not start with '{'; the file is not safetensors");
  }
  return {text, static_cast<size_t>(length)};
}

DType dtype_of(const std::string& name, const std::string& path, const std::string& tensor) {
  for (const NamedDType& entry : kDTypes) {
    if (name == entry.name) {
      return entry.dtype;
    }
  }
  fail(path,
       tensor,
       str_cat("dtype is \"", name, "\", expected F32, BF16, F16, I8, U8, I16, I32, I64 or BOOL"));
}

// A non-negative integer; nothing for any other JSON value.
std::optional<uint64_t> as_size(const Json& value) {
  if (!value.is_integer() || value.dump().starts_with('-')) {
    return std::nullopt;
  }
  return value.get_uint();
}

Shape shape_of(const Json& json, const std::string& path, const std::string& tensor) {
  if (!json.is_array() || json.size() > kMaxDims) {
    fail(path,
         tensor,
         str_cat("shape is ",
                 json.dump().substr(0, 100),
                 ", expected a list of at most ",
                 kMaxDims,
                 " sizes"));
  }
  Shape shape;
  for (const Json& item : json.get_array()) {
    const std::optional<uint64_t> dim = as_size(item);
    if (!dim || *dim > static_cast<uint64_t>(INT64_MAX)) {
      fail(path, tensor, str_cat("shape has the size ", item.dump().substr(0, 100)));
    }
    shape.push_back(static_cast<int64_t>(*dim));
  }
  return shape;
}

// One entry of the header; its offsets are made absolute and lie inside the data.
TensorInfo read_entry(const std::string& name,
                      const Json& json,
                      uint64_t data_begin,
                      uint64_t data_bytes,
                      const std::string& path) {
  if (!json.is_object()) {
    fail(path, name, str_cat("entry is ", json.type_name(), ", expected an object"));
  }
  const Json* dtype = json.find("dtype");
  const Json* shape = json.find("shape");
  const Json* offsets = json.find("data_offsets");
  if (json.size() != 3 || dtype == nullptr || !dtype->is_string() || shape == nullptr ||
      offsets == nullptr) {
    fail(path, name, "entry needs exactly dtype, shape and data_offsets");
  }
  TensorInfo tensor;
  tensor.name = name;
  tensor.dtype = dtype_of(dtype->get_string(), path, name);
  tensor.shape = shape_of(*shape, path, name);
  std::optional<uint64_t> begin;
  std::optional<uint64_t> end;
  if (offsets->is_array() && offsets->size() == 2) {
    begin = as_size((*offsets)[0]);
    end = as_size((*offsets)[1]);
  }
  if (!begin || !end || *begin > *end) {
    fail(path,
         name,
         str_cat("data_offsets are ",
                 offsets->dump().substr(0, 100),
                 ", expected [begin, end] in order"));
  }
  if (*end > data_bytes) {
    fail(path,
         name,
         str_cat("data ends at byte ",
                 *end,
                 ", but the file has only ",
                 data_bytes,
                 " bytes of data; it is cut off"));
  }
  tensor.offset_bytes = data_begin + *begin;
  tensor.size_bytes = *end - *begin;
  uint64_t expected = 0;
  if (!checked_size_bytes({tensor.shape.begin(), tensor.shape.end()}, tensor.dtype, expected)) {
    fail(path, name, str_cat("shape ", to_string(tensor.shape), " overflows"));
  }
  if (expected != tensor.size_bytes) {
    fail(path,
         name,
         str_cat("data_offsets hold ",
                 tensor.size_bytes,
                 " bytes, but ",
                 to_string(tensor.dtype),
                 to_string(tensor.shape),
                 " needs ",
                 expected));
  }
  return tensor;
}

// Every byte of the data belongs to exactly one tensor.
void check_cover(const std::vector<TensorInfo>& tensors,
                 uint64_t data_begin,
                 uint64_t file_bytes,
                 const std::string& path) {
  uint64_t position = data_begin;
  const std::string* before = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset_bytes < position) {
      fail(path, tensor.name, str_cat("overlaps tensor \"", *before, "\""));
    }
    if (tensor.offset_bytes > position) {
      fail(path,
           tensor.name,
           str_cat(tensor.offset_bytes - position, " bytes before it belong to no tensor"));
    }
    position += tensor.size_bytes;
    before = &tensor.name;
  }
  if (position != file_bytes) {
    fail(path,
         str_cat(file_bytes - position,
                 " bytes follow the last tensor",
                 before == nullptr ? "" : str_cat(" (\"", *before, "\")"),
                 ", expected none"));
  }
}

void read_metadata(const Json& json, const std::string& path, SafetensorsHeader& header) {
  if (!json.is_object()) {
    fail(path, str_cat("__metadata__ is ", json.type_name(), ", expected an object of strings"));
  }
  for (const auto& [key, value] : json.get_object()) {
    if (!value.is_string()) {
      fail(path,
           str_cat("__metadata__ \"", key, "\" is ", value.type_name(), ", expected a string"));
    }
    header.metadata.emplace_back(key, value.get_string());
  }
}

const char* safetensors_name(DType dtype) {
  for (const NamedDType& entry : kDTypes) {
    if (dtype == entry.dtype) {
      return entry.name;
    }
  }
  MSTAR_CHECK(false, "safetensors cannot hold ", to_string(dtype));
  return "";
}

// A shard's name must stay beside the index: no path of any kind.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  const std::string_view text = header_text(file, path);
  const Json json = Json::parse(text, path, kMaxDepth);
  if (!json.is_object()) {
    fail(path, str_cat("header is ", json.type_name(), ", expected an object"));
  }
  const uint64_t data_begin = kLengthBytes + text.size();
  SafetensorsHeader header;
  for (const auto& [name, value] : json.get_object()) {
    if (name == "__metadata__") {
      read_metadata(value, path, header);
    } else {
      header.tensors.push_back(read_entry(name, value, data_begin, file.size() - data_begin, path));
    }
  }
  // Empty tensors share their place with the next one: those come first.
  std::ranges::stable_sort(header.tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset_bytes, a.size_bytes) < std::pair(b.offset_bytes, b.size_bytes);
  });
  check_cover(header.tensors, data_begin, file.size(), path);
  return header;
}

void SafetensorsFile::add(const std::string& path) {
  MappedFile file = MappedFile::open(path);
  SafetensorsHeader header = parse_safetensors(file.bytes(), path);
  if (file_paths().empty()) {
    metadata_ = std::move(header.metadata);
  }
  add_file(std::move(file), std::move(header.tensors));
}

std::unique_ptr<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  std::unique_ptr<SafetensorsFile> reader(new SafetensorsFile);
  reader->add(path);
  return reader;
}

std::unique_ptr<SafetensorsFile> SafetensorsFile::open_sharded(const std::string& index_path) {
  const Json index = Json::parse(read_text_file(index_path), index_path, kMaxDepth);
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is_object()) {
    fail(index_path, "has no object \"weight_map\"; it is not an index");
  }
  const std::string folder = std::filesystem::path(index_path).parent_path().string();
  std::vector<std::string> shards;  // in the order the index first names them
  std::unordered_map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : map->get_object()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get_string())) {
      fail(index_path, tensor, str_cat("its file is ", shard.dump(), ", expected a plain name"));
    }
    if (std::ranges::find(shards, shard.get_string()) == shards.end()) {
      shards.push_back(shard.get_string());
    }
    shard_of.emplace(tensor, shard.get_string());
  }
  std::ranges::sort(shards);
  std::unique_ptr<SafetensorsFile> reader(new SafetensorsFile);
  for (const std::string& shard : shards) {
    const std::string path = folder.empty() ? shard : str_cat(folder, "/", shard);
    if (!std::filesystem::exists(path)) {
      const auto first = std::ranges::find_if(
          map->get_object(), [&](const auto& item) { return item.second.get_string() == shard; });
      throw Error(ErrorCode::kNotFound,
                  str_cat("[",
                          index_path,
                          "] names the shard \"",
                          shard,
                          "\" (tensor \"",
                          first->first,
                          "\"), which is not there"));
    }
    reader->add(path);
  }
  for (const TensorInfo& tensor : reader->tensors()) {
    const auto entry = shard_of.find(tensor.name);
    if (entry == shard_of.end()) {
      fail(reader->path_of(tensor), tensor.name, "is not in the index");
    }
    if (shards[static_cast<size_t>(tensor.file)] != entry->second) {
      fail(reader->path_of(tensor),
           tensor.name,
           str_cat("the index says it is in \"", entry->second, "\""));
    }
    shard_of.erase(entry);
  }
  if (!shard_of.empty()) {
    const auto& [tensor, shard] = *std::ranges::min_element(shard_of);
    fail(index_path,
         tensor,
         str_cat("is not in \"",
                 shard,
                 "\", where the index says it is (",
                 shard_of.size(),
                 " tensors are missing in all)"));
  }
  return reader;
}

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    Json map = Json::object();
    for (const auto& [key, value] : metadata) {
      map.set(key, Json(value));
    }
    header.set("__metadata__", std::move(map));
  }
  int64_t position = 0;
  for (const auto& [name, tensor] : tensors) {
    MSTAR_CHECK(tensor.is_contiguous(), name);
    Json::Array shape;
    for (const int64_t dim : tensor.shape()) {
      shape.emplace_back(dim);
    }
    const int64_t end = position + tensor.size_bytes();
    header.set(name,
               Json::object({{"dtype", Json(safetensors_name(tensor.dtype()))},
                             {"shape", Json(std::move(shape))},
                             {"data_offsets", Json(Json::Array{Json(position), Json(end)})}}));
    position = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts aligned
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  std::array<char, kLengthBytes> length{};
  for (size_t index = 0; index < kLengthBytes; ++index) {
    length[index] = static_cast<char>(text.size() >> (8 * index));
  }
  file.write(length.data(), kLengthBytes);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& [name, tensor] : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.bytes()),
               static_cast<std::streamsize>(tensor.size_bytes()));
  }
  file.close();
  if (!file) {
    throw Error(ErrorCode::kInvalidArgument, str_cat("[", path, "] cannot be written"));
  }
}

}  // namespace mstar
