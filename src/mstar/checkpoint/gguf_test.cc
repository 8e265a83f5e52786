#include "mstar/checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {
namespace {

// Puts a file together value by value, right or wrong.
class Builder {
 public:
  template <typename T>
  Builder& put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }

  Builder& text(std::string_view value) {
    put<uint64_t>(value.size());
    bytes_ += value;
    return *this;
  }

  Builder& start(uint64_t num_tensors, uint64_t num_entries, uint32_t version = 3) {
    bytes_ += "GGUF";
    return put(version).put(num_tensors).put(num_entries);
  }

  Builder& key(std::string_view name, GgufType type) {
    return text(name).put(static_cast<uint32_t>(type));
  }

  Builder& array(std::string_view name, GgufType element_type, uint64_t count) {
    return key(name, GgufType::kArray).put(static_cast<uint32_t>(element_type)).put(count);
  }

  Builder& tensor(std::string_view name,
                  std::initializer_list<uint64_t> dims,
                  uint32_t type,
                  uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) {
      put(dim);
    }
    return put(type).put(offset);
  }

  Builder& pad(size_t alignment = 32) {
    bytes_.append((alignment - bytes_.size() % alignment) % alignment, '\0');
    return *this;
  }

  Builder& data(size_t count) {
    bytes_.append(count, '\1');
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

GgufHeader parse(const std::string& file) {
  return parse_gguf(std::as_bytes(std::span(file)), "m.gguf");
}

void expect_message(const Builder& builder, std::initializer_list<std::string_view> words) {
  std::string message = "(no error)";
  try {
    parse(builder.bytes());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    message = error.what();
  }
  for (const std::string_view word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << '"' << message << "\" lacks " << word;
  }
  EXPECT_NE(message.find("[m.gguf]"), std::string::npos) << message;
}

Builder good(uint32_t version = 3) {
  Builder b;
  b.start(2, 17, version);
  b.key("a.u8", GgufType::kU8).put<uint8_t>(200);
  b.key("a.i8", GgufType::kI8).put<int8_t>(-3);
  b.key("a.u16", GgufType::kU16).put<uint16_t>(60000);
  b.key("a.i16", GgufType::kI16).put<int16_t>(-300);
  b.key("a.u32", GgufType::kU32).put<uint32_t>(4000000000U);
  b.key("a.i32", GgufType::kI32).put<int32_t>(-70000);
  b.key("a.f32", GgufType::kF32).put<float>(0.5F);
  b.key("a.bool", GgufType::kBool).put<uint8_t>(1);
  b.key("a.string", GgufType::kString).text("héllo");
  b.key("a.u64", GgufType::kU64).put<uint64_t>(UINT64_MAX);
  b.key("a.i64", GgufType::kI64).put<int64_t>(INT64_MIN);
  b.key("a.f64", GgufType::kF64).put<double>(1e300);
  b.array("tokens", GgufType::kString, 3).text("a").text("").text("ccc");
  b.array("scores", GgufType::kF32, 2).put<float>(1.5F).put<float>(-2.0F);
  b.array("kinds", GgufType::kI32, 2).put<int32_t>(1).put<int32_t>(6);
  b.array("nested", GgufType::kArray, 2);
  b.put(static_cast<uint32_t>(GgufType::kU8)).put<uint64_t>(2).put<uint8_t>(1).put<uint8_t>(2);
  b.put(static_cast<uint32_t>(GgufType::kString)).put<uint64_t>(1).text("deep");
  b.key("general.alignment", GgufType::kU32).put<uint32_t>(64);
  b.tensor("w", {32, 2}, 8, 0);  // Q8_0 [2, 32]: 68 bytes
  b.tensor("v", {3}, 0, 128);    // F32 [3]
  b.pad(64).data(68).pad(64).data(12).pad(64);
  return b;
}

TEST(Gguf, ReadsEveryMetadataTypeInBothVersions) {
  for (const uint32_t version : {2U, 3U}) {
    const std::string file = std::filesystem::temp_directory_path() / "mstar_gguf_test.gguf";
    std::ofstream(file, std::ios::binary) << good(version).bytes();
    const auto reader = GgufFile::open(file);
    EXPECT_EQ(reader->get_int("a.u8"), 200);
    EXPECT_EQ(reader->get_int("a.i8"), -3);
    EXPECT_EQ(reader->get_int("a.u16"), 60000);
    EXPECT_EQ(reader->get_int("a.i16"), -300);
    EXPECT_EQ(reader->get_int("a.u32"), 4000000000);
    EXPECT_EQ(reader->get_int("a.i32"), -70000);
    EXPECT_EQ(reader->get_int("a.i64"), INT64_MIN);
    EXPECT_THROW(reader->get_int("a.u64"), Error);
    EXPECT_EQ(reader->get_double("a.f32"), 0.5);
    EXPECT_EQ(reader->get_double("a.f64"), 1e300);
    EXPECT_EQ(reader->get_double("a.i8"), -3.0);
    EXPECT_EQ(reader->find_bool("a.bool"), true);
    EXPECT_EQ(reader->get_string("a.string"), "héllo");
    EXPECT_THROW(reader->get_string("a.u8"), Error);
    EXPECT_THROW(reader->get_string("a.absent"), Error);
    EXPECT_FALSE(reader->find_string("a.absent").has_value());
    EXPECT_EQ(reader->get_strings("tokens"), (std::vector<std::string>{"a", "", "ccc"}));
    EXPECT_EQ(reader->get_floats("scores"), (std::vector<float>{1.5F, -2.0F}));
    EXPECT_EQ(reader->get_ints("kinds"), (std::vector<int64_t>{1, 6}));
    EXPECT_THROW(reader->get_strings("scores"), Error);
    EXPECT_THROW(reader->get_ints("tokens"), Error);
    EXPECT_THROW(reader->get_floats("a.u8"), Error);
    const Tensor w = reader->get("w");
    EXPECT_EQ(w.dtype(), DType::kQ8_0);
    EXPECT_EQ(w.shape(), (Shape{2, 32}));  // ggml lists the innermost size first
    EXPECT_EQ(w.bytes()[67], std::byte{1});
    EXPECT_EQ(reader->get("v").num_elements(), 3);
    std::filesystem::remove(file);
  }
}

TEST(Gguf, RefusesWhatIsNotGguf) {
  expect_message(Builder().data(2), {"cut off"});
  expect_message(Builder().data(64), {"GGUF"});
  expect_message(Builder().start(0, 0, 1), {"version 1"});
  expect_message(Builder().start(0, 0, 0x03000000), {"version"});
}

TEST(Gguf, RefusesCountsBeyondTheFile) {
  expect_message(Builder().start(UINT64_MAX, 0), {"tensors", "cut off"});
  expect_message(Builder().start(0, UINT64_MAX / 2), {"metadata entries", "cut off"});
  expect_message(Builder().start(0, 1).put<uint64_t>(UINT64_MAX - 4).data(32),
                 {"metadata entry 0", "string"});
  expect_message(Builder().start(0, 1).key("k", GgufType::kString).put<uint64_t>(UINT64_MAX),
                 {"\"k\"", "cut off"});
  expect_message(Builder().start(0, 1).array("k", GgufType::kU64, UINT64_MAX / 4).data(64),
                 {"\"k\"", "array", "cut off"});
  expect_message(Builder().start(0, 1).array("k", GgufType::kString, UINT64_MAX).data(64),
                 {"\"k\"", "array"});
}

TEST(Gguf, RefusesBadMetadata) {
  expect_message(Builder().start(0, 1).text("k").put<uint32_t>(13).data(16), {"\"k\"", "type 13"});
  expect_message(Builder().start(0, 1).key("k", GgufType::kBool).put<uint8_t>(2),
                 {"\"k\"", "bool"});
  Builder deep;
  deep.start(0, 1).array("k", GgufType::kArray, 1);
  for (int level = 0; level < 100000; ++level) {
    deep.put(static_cast<uint32_t>(GgufType::kArray)).put<uint64_t>(1);
  }
  expect_message(deep, {"\"k\"", "nested deeper"});
  expect_message(Builder()
                     .start(0, 2)
                     .key("k", GgufType::kU8)
                     .put<uint8_t>(1)
                     .key("k", GgufType::kU8)
                     .put<uint8_t>(1),
                 {"\"k\"", "twice"});
  expect_message(Builder().start(0, 1).key("general.alignment", GgufType::kU32).put<uint32_t>(24),
                 {"general.alignment"});
  expect_message(Builder().start(0, 1).key("general.alignment", GgufType::kU8).put<uint8_t>(32),
                 {"general.alignment"});
  expect_message(Builder().start(0, 1).key("", GgufType::kU8).put<uint8_t>(32), {"empty"});
}

TEST(Gguf, RefusesBadTensors) {
  expect_message(Builder().start(1, 0).tensor("t", {1, 1, 1, 1, 1}, 0, 0), {"\"t\"", "5 dims"});
  expect_message(Builder().start(1, 0).tensor("t", {UINT64_MAX}, 0, 0), {"\"t\"", "size"});
  expect_message(Builder().start(1, 0).tensor("t", {1ULL << 40, 1ULL << 40}, 0, 0),
                 {"\"t\"", "overflows"});
  expect_message(Builder().start(1, 0).tensor("t", {16}, 8, 0), {"\"t\"", "blocks"});
  expect_message(Builder().start(1, 0).tensor("t", {256}, 10, 0), {"\"t\"", "type 10"});
  expect_message(Builder().start(1, 0).tensor("t", {8}, 0, 8).pad().data(64),
                 {"\"t\"", "not aligned"});
  expect_message(Builder().start(1, 0).tensor("t", {8}, 0, 0).pad().data(31), {"\"t\"", "cut off"});
  expect_message(Builder().start(1, 0).tensor("t", {8}, 0, UINT64_MAX - 31).pad().data(32),
                 {"\"t\"", "cut off"});
  expect_message(Builder().start(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32), {"twice"});
}

TEST(Gguf, RefusesOverlapHolesAndTrailingBytes) {
  expect_message(
      Builder().start(2, 0).tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).pad().data(64),
      {"\"b\"", "overlaps", "\"a\""});
  expect_message(
      Builder().start(2, 0).tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 64).pad().data(96),
      {"\"b\"", "belong to no tensor"});
  expect_message(Builder().start(1, 0).tensor("a", {8}, 0, 0).pad().data(64), {"32 bytes follow"});
}

TEST(Gguf, AnyCutOfAGoodFileIsRefusedOrComplete) {
  const std::string file = good().bytes();
  EXPECT_NO_THROW(parse(file));
  const size_t needed = file.size() - 52;  // the last tensor's padding may be missing
  for (size_t length = 0; length < needed; ++length) {
    EXPECT_THROW(parse(file.substr(0, length)), Error) << length;
  }
}

}  // namespace
}  // namespace mstar
