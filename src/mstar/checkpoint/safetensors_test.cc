#include "mstar/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

// A folder of its own for every test.
class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (fs::temp_directory_path() / str_cat("mstar_safetensors_", test->name())).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  ~SafetensorsTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return str_cat(folder_, "/", name); }

  std::string folder_;
};

std::string file_with(std::string_view header, size_t data_bytes, int64_t length = -1) {
  const auto stated =
      static_cast<uint64_t>(length < 0 ? static_cast<int64_t>(header.size()) : length);
  std::string file(8, '\0');
  std::memcpy(file.data(), &stated, 8);
  file += header;
  file.append(data_bytes, 'x');
  return file;
}

// The message that parsing gives; "" when it passes.
std::string message_of(const std::string& file) {
  try {
    parse_safetensors(std::as_bytes(std::span(file)), "weights.safetensors");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
}

void expect_message(const std::string& file, std::initializer_list<std::string_view> words) {
  const std::string message = message_of(file);
  for (const std::string_view word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << '"' << message << "\" lacks " << word;
  }
  EXPECT_NE(message.find("[weights.safetensors]"), std::string::npos) << message;
}

constexpr std::string_view kGood = R"({"__metadata__":{"format":"pt"},)"
                                   R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                                   R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[16,16]},)"
                                   R"("b":{"dtype":"I64","shape":[],"data_offsets":[16,24]}}  )";

TEST_F(SafetensorsTest, ReadsWhatWasWritten) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = a.to(DType::kBF16);
  const Tensor c = Tensor::from(std::vector<int64_t>{-1, INT64_MAX}, {2});
  write_safetensors(path("w.safetensors"), {{"a", a}, {"x.b", b}, {"c", c}}, {{"format", "pt"}});
  Tensor read;
  {
    const auto reader = open_checkpoint(folder_);
    ASSERT_EQ(reader->tensors().size(), 3U);
    EXPECT_EQ(reader->tensors()[1].name, "x.b");
    EXPECT_EQ(reader->total_bytes(), 24U + 12U + 16U);
    EXPECT_EQ(reader->get("x.b").to_floats(), a.to_floats());
    EXPECT_EQ(reader->get("c").to_ints(), c.to_ints());
    read = reader->get("a");
    EXPECT_EQ(reader->find("d"), nullptr);
    EXPECT_THROW(reader->get("d"), Error);
  }
  EXPECT_EQ(read.to_floats(), a.to_floats());  // the mapping lives on
}

// Pages of files in this process's resident memory (proc(5), statm).
int64_t resident_file_pages() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  int64_t shared = 0;
  statm >> size >> resident >> shared;
  return shared;
}

TEST_F(SafetensorsTest, ReleasedPagesComeBackWhenRead) {
  constexpr int64_t kPages = 1024;
  Tensor written = Tensor::empty({kPages * 4096 / 4}, DType::kF32);
  for (int64_t index = 0; index < written.num_elements(); ++index) {
    written.data<float>()[index] = static_cast<float>(index);
  }
  write_safetensors(path("w.safetensors"), {{"a", written}});
  const auto reader = open_checkpoint(folder_);
  const Tensor read = reader->get("a");
  EXPECT_EQ(read.to_floats(), written.to_floats());
  const int64_t before = resident_file_pages();
  reader->release_pages();
  EXPECT_LT(resident_file_pages(), before - kPages / 2);
  EXPECT_EQ(read.to_floats(), written.to_floats());
}

TEST_F(SafetensorsTest, ViewsAlignedDataAndCopiesTheRest) {
  const auto write = [&](std::string header) {
    std::string file = file_with(header, 0);
    const float values[2] = {1.5F, -2.0F};
    file.append(reinterpret_cast<const char*>(values), sizeof(values));
    std::ofstream(path("w.safetensors"), std::ios::binary) << file;
  };
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  header.append((4 - header.size() % 4) % 4, ' ');
  for (const bool aligned : {true, false}) {
    write(header + (aligned ? "" : " "));
    const auto reader = SafetensorsFile::open(path("w.safetensors"));
    const Tensor first = reader->get("a");
    EXPECT_EQ(first.to_floats(), (std::vector<float>{1.5F, -2.0F}));
    EXPECT_EQ(first.bytes() == reader->get("a").bytes(), aligned);
  }
}

TEST_F(SafetensorsTest, AcceptsScalarsEmptyTensorsAndMetadata) {
  const std::string file = file_with(kGood, 24);
  const SafetensorsHeader header =
      parse_safetensors(std::as_bytes(std::span(file)), "weights.safetensors");
  EXPECT_EQ(header.tensors.size(), 3U);
  ASSERT_EQ(header.metadata.size(), 1U);
  EXPECT_EQ(header.metadata[0].second, "pt");
}

TEST_F(SafetensorsTest, RefusesLengthsThatDoNotFit) {
  expect_message("\x02\x01", {"has 2 bytes", "8"});
  expect_message(file_with(kGood, 24, 100000), {"header length is 100000", "cut off"});
  expect_message(file_with(kGood, 24, INT64_MAX), {"header length is"});
  expect_message(file_with("", 10), {"does not start with '{'"});
  expect_message(file_with("[1]", 0), {"does not start with '{'"});
}

TEST_F(SafetensorsTest, RefusesBadJson) {
  expect_message(file_with(kGood.substr(0, 80), 24), {"not valid JSON"});
  expect_message(file_with(R"({"a":{"a":{"a":{"a":{"a":1}}}}})", 0), {"nested deeper"});
  std::string deep(200000, '[');
  expect_message(file_with(str_cat(R"({"a":)", deep), 0), {"nested deeper"});
  expect_message(file_with(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                           R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                           0),
                 {"\"a\""});
  expect_message(file_with(R"({"a":7})", 0), {"\"a\"", "integer", "object"});
  expect_message(file_with(R"({"a":{"dtype":"F32","shape":[0]}})", 0), {"\"a\"", "data_offsets"});
  expect_message(file_with(R"({"__metadata__":{"x":1}})", 0), {"__metadata__", "string"});
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return str_cat(
      R"({"w":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", offsets, "}}");
}

TEST_F(SafetensorsTest, RefusesBadEntriesNamingTheTensor) {
  expect_message(file_with(entry("F8_E4M3", "[4]", "[0,4]"), 4), {"\"w\"", "F8_E4M3"});
  expect_message(file_with(entry("F32", "[-1]", "[0,4]"), 4), {"\"w\"", "-1"});
  expect_message(file_with(entry("F32", "[1.5]", "[0,4]"), 4), {"\"w\"", "1.5"});
  expect_message(file_with(entry("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4),
                 {"\"w\"", "at most 8"});
  expect_message(file_with(entry("F32", "[2]", "[0,4]"), 4), {"\"w\"", "needs 8"});
  expect_message(file_with(entry("F32", "[1]", "[4,0]"), 4), {"\"w\"", "in order"});
  expect_message(file_with(entry("F32", "[1]", "[0,-4]"), 4), {"\"w\"", "in order"});
  expect_message(file_with(entry("F32", "[2]", "[0,8]"), 4), {"\"w\"", "cut off"});
  expect_message(file_with(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0),
                 {"\"w\"", "overflows"});
  expect_message(file_with(entry("F32", "[9223372036854775807,0,9223372036854775807]", "[0,0]"), 0),
                 {"\"w\"", "overflows"});
  expect_message(file_with(entry("F32", "[18446744073709551615]", "[0,0]"), 0), {"\"w\""});
}

TEST_F(SafetensorsTest, RefusesOverlapHolesAndTrailingBytes) {
  const auto two = [](std::string_view first, std::string_view second) {
    return str_cat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)",
                   first,
                   R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)",
                   second,
                   "}}");
  };
  EXPECT_EQ(message_of(file_with(two("[4,8]", "[0,4]"), 8)), "");
  expect_message(file_with(two("[0,4]", "[2,6]"), 6), {"\"b\"", "overlaps", "\"a\""});
  expect_message(file_with(two("[0,4]", "[5,9]"), 9), {"\"b\"", "1 bytes before it"});
  expect_message(file_with(two("[0,4]", "[4,8]"), 11), {"3 bytes follow the last tensor"});
}

class ShardedTest : public SafetensorsTest {
 protected:
  void write_index(std::string_view map) {
    std::ofstream(path("model.safetensors.index.json"))
        << str_cat(R"({"metadata":{"total_size":8},"weight_map":)", map, "}");
  }

  std::string open_message() {
    try {
      open_checkpoint(folder_);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  ShardedTest() {
    const Tensor one = Tensor::from(std::vector<float>{1}, {1});
    write_safetensors(path("m-1.safetensors"), {{"a", one}, {"b", one}});
    write_safetensors(path("m-2.safetensors"), {{"c", Tensor::from(std::vector<float>{2}, {1})}});
  }
};

TEST_F(ShardedTest, JoinsShards) {
  write_index(R"({"c":"m-2.safetensors","a":"m-1.safetensors","b":"m-1.safetensors"})");
  const auto reader = open_checkpoint(folder_);
  EXPECT_EQ(reader->tensors().size(), 3U);
  EXPECT_EQ(reader->get("c").to_floats()[0], 2.0F);
  EXPECT_EQ(reader->path_of(*reader->find("c")), path("m-2.safetensors"));
}

TEST_F(ShardedTest, NamesAbsentShardsAndTensorsThatAreElsewhere) {
  write_index(R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-3.safetensors"})");
  EXPECT_NE(open_message().find("shard \"m-3.safetensors\" (tensor \"c\")"), std::string::npos);
  write_index(R"({"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-2.safetensors"})");
  EXPECT_NE(open_message().find("tensor \"b\": the index says"), std::string::npos);
  write_index(R"({"a":"m-1.safetensors","c":"m-2.safetensors"})");
  EXPECT_NE(open_message().find("tensor \"b\": is not in the index"), std::string::npos);
  write_index(
      R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors","d":"m-2.safetensors"})");
  EXPECT_NE(open_message().find("tensor \"d\": is not in \"m-2.safetensors\""), std::string::npos);
  write_index(R"({"a":"../m-1.safetensors"})");
  EXPECT_NE(open_message().find("plain name"), std::string::npos);
  write_index("[]");
  EXPECT_NE(open_message().find("weight_map"), std::string::npos);
}

TEST_F(SafetensorsTest, FoldersNeedExactlyOneCheckpoint) {
  EXPECT_THROW(open_checkpoint(folder_), Error);
  EXPECT_THROW(open_checkpoint(path("absent.safetensors")), Error);
  const Tensor one = Tensor::from(std::vector<float>{1}, {1});
  write_safetensors(path("a.safetensors"), {{"a", one}});
  EXPECT_EQ(open_checkpoint(folder_)->tensors().size(), 1U);
  write_safetensors(path("b.safetensors"), {{"a", one}});
  EXPECT_THROW(open_checkpoint(folder_), Error);
}

}  // namespace
}  // namespace mstar
