#include "mstar/checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are read in place");

constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr int kMaxArrayDepth = 4;
constexpr uint32_t kMaxGgmlDims = 4;
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;       // key length, type, value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, dims, type, offset
constexpr std::array<const char*, 13> kTypeNames =
    {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", path, "] ", what));
}

const char* type_name(GgufType type) {
  return kTypeNames[static_cast<size_t>(type)];
}

// Bytes of a scalar; 0 for strings and arrays.
uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return 0;
}

template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Walks the bytes of a header; every step checks that they are there.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  uint64_t position() const { return position_; }

  uint64_t remaining() const { return bytes_.size() - position_; }

  // What is being read, for messages.
  void at(std::string what) { what_ = std::move(what); }

  [[noreturn]] void fail(std::string_view problem) const {
    mstar::fail(path_, str_cat(what_, ": ", problem));
  }

  std::span<const std::byte> take(uint64_t count) {
    if (count > remaining()) {
      fail(str_cat("needs ",
                   count,
                   " bytes at byte ",
                   position_,
                   ", but ",
                   remaining(),
                   " are left; the file is cut off"));
    }
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <typename T>
  T scalar() {
    return load<T>(take(sizeof(T)).data());
  }

  std::string_view string(uint64_t max_bytes) {
    const auto length = scalar<uint64_t>();
    if (length > max_bytes) {
      fail(str_cat("a string of ", length, " bytes, expected at most ", max_bytes));
    }
    const auto text = take(length);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  GgufType type() {
    const auto number = scalar<uint32_t>();
    if (number >= kTypeNames.size()) {
      fail(str_cat("value type ", number, ", expected 0 to ", kTypeNames.size() - 1));
    }
    return static_cast<GgufType>(number);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::string what_ = "header";
  uint64_t position_ = 0;
};

void skip_array(Cursor& cursor, GgufType element_type, uint64_t count, int depth);

void skip_value(Cursor& cursor, GgufType type, int depth) {
  if (type == GgufType::kString) {
    cursor.string(UINT64_MAX);
  } else if (type == GgufType::kArray) {
    const GgufType element_type = cursor.type();
    const auto count = cursor.scalar<uint64_t>();
    skip_array(cursor, element_type, count, depth + 1);
  } else if (type == GgufType::kBool) {
    const auto value = cursor.scalar<uint8_t>();
    if (value > 1) {
      cursor.fail(str_cat("a bool is ", static_cast<int>(value), ", expected 0 or 1"));
    }
  } else {
    cursor.take(scalar_bytes(type));
  }
}

void skip_array(Cursor& cursor, GgufType element_type, uint64_t count, int depth) {
  if (depth > kMaxArrayDepth) {
    cursor.fail(str_cat("arrays nested deeper than ", kMaxArrayDepth));
  }
  const uint64_t fixed = element_type == GgufType::kBool ? 0 : scalar_bytes(element_type);
  const uint64_t least = std::max<uint64_t>(fixed, 1);
  if (count > cursor.remaining() / least) {
    cursor.fail(str_cat("an array of ",
                        count,
                        " ",
                        type_name(element_type),
                        ", but only ",
                        cursor.remaining(),
                        " bytes are left; the file is cut off"));
  }
  if (fixed > 0) {
    cursor.take(count * fixed);
    return;
  }
  for (uint64_t index = 0; index < count; ++index) {
    skip_value(cursor, element_type, depth);
  }
}

std::string checked_name(Cursor& cursor, std::string_view name) {
  if (name.empty() || name.find('\0') != std::string_view::npos) {
    cursor.fail("a name is empty or holds a zero byte");
  }
  return std::string(name);
}

GgufEntry read_entry(Cursor& cursor, uint64_t index) {
  cursor.at(str_cat("metadata entry ", index));
  GgufEntry entry;
  entry.key = checked_name(cursor, cursor.string(kMaxNameBytes));
  cursor.at(str_cat("metadata \"", entry.key, "\""));
  entry.type = cursor.type();
  if (entry.type == GgufType::kArray) {
    entry.element_type = cursor.type();
    entry.num_elements = cursor.scalar<uint64_t>();
    const uint64_t begin = cursor.position();
    Cursor ahead = cursor;
    skip_array(ahead, entry.element_type, entry.num_elements, 1);
    entry.value = cursor.take(ahead.position() - begin);
  } else {
    const uint64_t begin = cursor.position();
    Cursor ahead = cursor;
    skip_value(ahead, entry.type, 0);
    entry.value = cursor.take(ahead.position() - begin);
  }
  return entry;
}

std::optional<DType> dtype_of(uint32_t ggml_type) {
  switch (ggml_type) {
    case 0: return DType::kF32;
    case 1: return DType::kF16;
    case 2: return DType::kQ4_0;
    case 3: return DType::kQ4_1;
    case 6: return DType::kQ5_0;
    case 7: return DType::kQ5_1;
    case 8: return DType::kQ8_0;
    case 12: return DType::kQ4_K;
    case 13: return DType::kQ5_K;
    case 14: return DType::kQ6_K;
    case 24: return DType::kI8;
    case 25: return DType::kI16;
    case 26: return DType::kI32;
    case 27: return DType::kI64;
    case 30: return DType::kBF16;
    default: return std::nullopt;
  }
}

// One tensor's description; its offset stays relative to the data.
TensorInfo read_tensor(Cursor& cursor, uint64_t index) {
  cursor.at(str_cat("tensor entry ", index));
  TensorInfo tensor;
  tensor.name = checked_name(cursor, cursor.string(kMaxNameBytes));
  cursor.at(str_cat("tensor \"", tensor.name, "\""));
  const auto num_dims = cursor.scalar<uint32_t>();
  if (num_dims > kMaxGgmlDims) {
    cursor.fail(str_cat("has ", num_dims, " dims, expected at most ", kMaxGgmlDims));
  }
  std::array<int64_t, kMaxGgmlDims> reversed{};
  for (uint32_t dim = 0; dim < num_dims; ++dim) {
    const auto size = cursor.scalar<uint64_t>();
    if (size > static_cast<uint64_t>(INT64_MAX)) {
      cursor.fail(str_cat("has the size ", size));
    }
    reversed[num_dims - 1 - dim] = static_cast<int64_t>(size);
  }
  tensor.shape = Shape(std::span<const int64_t>(reversed.data(), num_dims));
  const auto type = cursor.scalar<uint32_t>();
  const std::optional<DType> dtype = dtype_of(type);
  if (!dtype) {
    cursor.fail(str_cat("has the type ",
                        type,
                        ", expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K "
                        "or an integer type; convert the file"));
  }
  tensor.dtype = *dtype;
  tensor.offset_bytes = cursor.scalar<uint64_t>();
  if (!checked_size_bytes({tensor.shape.begin(), tensor.shape.end()}, *dtype, tensor.size_bytes)) {
    cursor.fail(str_cat("shape ",
                        to_string(tensor.shape),
                        " overflows or is no whole number of ",
                        to_string(*dtype),
                        " blocks"));
  }
  return tensor;
}

uint64_t read_alignment(const GgufHeader& header, const std::string& path) {
  for (const GgufEntry& entry : header.metadata) {
    if (entry.key != "general.alignment") {
      continue;
    }
    const uint32_t value = entry.type == GgufType::kU32 ? load<uint32_t>(entry.value.data()) : 0;
    if (!std::has_single_bit(value) || value > kMaxAlignment) {
      fail(path, "general.alignment is not a power of two (u32) of at most 1048576");
    }
    return value;
  }
  return GgufHeader().alignment;
}

uint64_t align_up(uint64_t position, uint64_t alignment) {
  return (position + alignment - 1) / alignment * alignment;
}

// Makes offsets absolute and checks that the data is there, aligned, without overlap or gaps other
// than padding.
void place_data(GgufHeader& header,
                uint64_t header_bytes,
                uint64_t file_bytes,
                const std::string& path) {
  const uint64_t data_begin = align_up(header_bytes, header.alignment);
  const uint64_t data_bytes = file_bytes > data_begin ? file_bytes - data_begin : 0;
  std::vector<TensorInfo*> by_place;
  for (TensorInfo& tensor : header.tensors) {
    const std::string what = str_cat("tensor \"", tensor.name, "\": ");
    if (tensor.offset_bytes % header.alignment != 0) {
      fail(path,
           str_cat(what, "offset ", tensor.offset_bytes, " is not aligned to ", header.alignment));
    }
    if (tensor.offset_bytes > data_bytes || tensor.size_bytes > data_bytes - tensor.offset_bytes) {
      fail(path,
           str_cat(what,
                   "needs ",
                   tensor.size_bytes,
                   " bytes at ",
                   tensor.offset_bytes,
                   ", but the file has only ",
                   data_bytes,
                   " bytes of data; it is cut off"));
    }
    by_place.push_back(&tensor);
  }
  std::ranges::stable_sort(by_place, [](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->offset_bytes, a->size_bytes) < std::pair(b->offset_bytes, b->size_bytes);
  });
  uint64_t position = 0;
  const TensorInfo* before = nullptr;
  for (TensorInfo* tensor : by_place) {
    if (tensor->offset_bytes < position) {
      fail(path, str_cat("tensor \"", tensor->name, "\": overlaps tensor \"", before->name, "\""));
    }
    if (tensor->offset_bytes - position >= header.alignment) {
      fail(path,
           str_cat("tensor \"",
                   tensor->name,
                   "\": ",
                   tensor->offset_bytes - position,
                   " bytes before it belong to no tensor"));
    }
    position = tensor->offset_bytes + tensor->size_bytes;
    before = tensor;
  }
  if (data_bytes - position >= header.alignment) {
    fail(path,
         str_cat(data_bytes - position,
                 " bytes follow the last tensor, expected less than ",
                 header.alignment));
  }
  for (TensorInfo& tensor : header.tensors) {
    tensor.offset_bytes += data_begin;
  }
}

void check_count(Cursor& cursor, uint64_t count, uint64_t least_bytes, std::string_view of_what) {
  if (count > cursor.remaining() / least_bytes) {
    cursor.fail(str_cat("says ",
                        count,
                        " ",
                        of_what,
                        ", but only ",
                        cursor.remaining(),
                        " bytes follow; the file is cut off"));
  }
}

std::optional<int64_t> int_value(GgufType type, const std::byte* bytes) {
  switch (type) {
    case GgufType::kU8: return load<uint8_t>(bytes);
    case GgufType::kI8: return load<int8_t>(bytes);
    case GgufType::kU16: return load<uint16_t>(bytes);
    case GgufType::kI16: return load<int16_t>(bytes);
    case GgufType::kU32: return load<uint32_t>(bytes);
    case GgufType::kI32: return load<int32_t>(bytes);
    case GgufType::kI64: return load<int64_t>(bytes);
    case GgufType::kU64: {
      const auto value = load<uint64_t>(bytes);
      if (value <= static_cast<uint64_t>(INT64_MAX)) {
        return static_cast<int64_t>(value);
      }
      return std::nullopt;
    }
    default: return std::nullopt;
  }
}

std::optional<double> double_value(GgufType type, const std::byte* bytes) {
  if (type == GgufType::kF32) {
    return load<float>(bytes);
  }
  if (type == GgufType::kF64) {
    return load<double>(bytes);
  }
  const std::optional<int64_t> value = int_value(type, bytes);
  return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

}  // namespace

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& path) {
  Cursor cursor(file, path);
  const auto magic = cursor.take(4);
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    cursor.fail("does not start with \"GGUF\"; the file is not GGUF");
  }
  GgufHeader header;
  header.version = cursor.scalar<uint32_t>();
  if (header.version != 2 && header.version != 3) {
    cursor.fail(str_cat("version ", header.version, ", expected 2 or 3 (little-endian)"));
  }
  const auto num_tensors = cursor.scalar<uint64_t>();
  const auto num_entries = cursor.scalar<uint64_t>();
  check_count(cursor, num_entries, kMinEntryBytes, "metadata entries");
  check_count(cursor, num_tensors, kMinTensorBytes, "tensors");
  std::unordered_set<std::string> names;
  for (uint64_t index = 0; index < num_entries; ++index) {
    header.metadata.push_back(read_entry(cursor, index));
    if (!names.insert(header.metadata.back().key).second) {
      cursor.fail("the key is there twice");
    }
  }
  names.clear();
  header.alignment = read_alignment(header, path);
  for (uint64_t index = 0; index < num_tensors; ++index) {
    header.tensors.push_back(read_tensor(cursor, index));
    if (!names.insert(header.tensors.back().name).second) {
      cursor.fail("the name is there twice");
    }
  }
  place_data(header, cursor.position(), file.size(), path);
  return header;
}

std::unique_ptr<GgufFile> GgufFile::open(const std::string& path) {
  MappedFile file = MappedFile::open(path);
  std::unique_ptr<GgufFile> reader(new GgufFile);
  reader->header_ = parse_gguf(file.bytes(), path);
  reader->add_file(std::move(file), reader->header_.tensors);
  return reader;
}

const GgufEntry* GgufFile::find_entry(std::string_view key) const {
  const auto found = std::ranges::find(header_.metadata, key, &GgufEntry::key);
  return found == header_.metadata.end() ? nullptr : &*found;
}

const GgufEntry& GgufFile::get_entry(std::string_view key) const {
  if (const GgufEntry* entry = find_entry(key)) {
    return *entry;
  }
  std::vector<std::string> keys;
  for (const GgufEntry& entry : header_.metadata) {
    keys.push_back(entry.key);
  }
  const std::string nearest = nearest_name(key, keys);
  fail(file_paths().front(),
       str_cat("has no metadata \"",
               key,
               "\"",
               nearest.empty() ? "" : str_cat("; the nearest is \"", nearest, "\"")));
}

const GgufEntry& GgufFile::get_array(std::string_view key) const {
  const GgufEntry& entry = get_entry(key);
  if (entry.type != GgufType::kArray) {
    fail_type(entry, "an array");
  }
  return entry;
}

void GgufFile::fail_type(const GgufEntry& entry, std::string_view expected) const {
  const std::string found = entry.type == GgufType::kArray
                                ? str_cat("array of ", type_name(entry.element_type))
                                : std::string(type_name(entry.type));
  fail(file_paths().front(),
       str_cat("metadata \"", entry.key, "\": found ", found, ", expected ", expected));
}

std::optional<int64_t> GgufFile::find_int(std::string_view key) const {
  const GgufEntry* entry = find_entry(key);
  if (entry == nullptr) {
    return std::nullopt;
  }
  const std::optional<int64_t> value = int_value(entry->type, entry->value.data());
  if (!value) {
    fail_type(*entry, "an integer below 2^63");
  }
  return value;
}

std::optional<double> GgufFile::find_double(std::string_view key) const {
  const GgufEntry* entry = find_entry(key);
  if (entry == nullptr) {
    return std::nullopt;
  }
  const std::optional<double> value = double_value(entry->type, entry->value.data());
  if (!value) {
    fail_type(*entry, "a number");
  }
  return value;
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufEntry* entry = find_entry(key);
  if (entry == nullptr) {
    return std::nullopt;
  }
  if (entry->type != GgufType::kBool) {
    fail_type(*entry, "a bool");
  }
  return load<uint8_t>(entry->value.data()) != 0;
}

std::optional<std::string> GgufFile::find_string(std::string_view key) const {
  const GgufEntry* entry = find_entry(key);
  if (entry == nullptr) {
    return std::nullopt;
  }
  if (entry->type != GgufType::kString) {
    fail_type(*entry, "a string");
  }
  const auto* text = reinterpret_cast<const char*>(entry->value.data());
  return std::string(text + sizeof(uint64_t), entry->value.size() - sizeof(uint64_t));
}

int64_t GgufFile::get_int(std::string_view key) const {
  get_entry(key);
  return *find_int(key);
}

double GgufFile::get_double(std::string_view key) const {
  get_entry(key);
  return *find_double(key);
}

std::string GgufFile::get_string(std::string_view key) const {
  get_entry(key);
  return *find_string(key);
}

std::vector<std::string> GgufFile::get_strings(std::string_view key) const {
  const GgufEntry& entry = get_array(key);
  if (entry.element_type != GgufType::kString) {
    fail_type(entry, "an array of strings");
  }
  std::vector<std::string> strings;
  strings.reserve(entry.num_elements);
  const auto* text = reinterpret_cast<const char*>(entry.value.data());
  size_t position = 0;
  for (uint64_t index = 0; index < entry.num_elements; ++index) {
    const auto length = load<uint64_t>(entry.value.data() + position);
    position += sizeof(uint64_t);
    strings.emplace_back(text + position, length);
    position += length;
  }
  return strings;
}

std::vector<float> GgufFile::get_floats(std::string_view key) const {
  const GgufEntry& entry = get_array(key);
  const uint64_t step = scalar_bytes(entry.element_type);
  std::vector<float> values;
  values.reserve(entry.num_elements);
  for (uint64_t index = 0; index < entry.num_elements; ++index) {
    const auto value = double_value(entry.element_type, entry.value.data() + index * step);
    if (!value) {
      fail_type(entry, "an array of numbers");
    }
    values.push_back(static_cast<float>(*value));
  }
  return values;
}

std::vector<int64_t> GgufFile::get_ints(std::string_view key) const {
  const GgufEntry& entry = get_array(key);
  const uint64_t step = scalar_bytes(entry.element_type);
  std::vector<int64_t> values;
  values.reserve(entry.num_elements);
  for (uint64_t index = 0; index < entry.num_elements; ++index) {
    const auto value = int_value(entry.element_type, entry.value.data() + index * step);
    if (!value) {
      fail_type(entry, "an array of integers below 2^63");
    }
    values.push_back(*value);
  }
  return values;
}

}  // namespace mstar
