#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/base/json.h"
#include "mstar/tensor/tensor.h"

namespace mstar::testing {

// Recorded tensors of one test case. A reader for files we wrote ourselves: it trusts them.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    MSTAR_CHECK(file.good(), path);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    const Json header = Json::parse(std::string_view(bytes).substr(8, header_bytes));
    for (const auto& [name, entry] : header.get_object()) {
      if (name == "__metadata__") {
        continue;
      }
      Shape shape;
      for (const Json& dim : entry.at("shape").get_array()) {
        shape.push_back(dim.get_int());
      }
      Tensor tensor = Tensor::empty(shape, *parse_dtype(entry.at("dtype").get_string()));
      const auto begin = entry.at("data_offsets")[0].get_uint();
      std::memcpy(tensor.bytes(),
                  bytes.data() + 8 + header_bytes + begin,
                  static_cast<size_t>(tensor.size_bytes()));
      tensors_.emplace(name, tensor);
    }
  }

  const Tensor& operator()(const std::string& name) const { return tensors_.at(name); }

 private:
  std::map<std::string, Tensor> tensors_;
};

}  // namespace mstar::testing
