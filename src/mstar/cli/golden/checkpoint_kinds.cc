// GGUF files: every tensor decoded.
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/gguf.h"
#include "mstar/cli/golden/registry.h"
#include "mstar/components/linear.h"
#include "mstar/kernels/ops/matmul.h"

namespace mstar::golden {

namespace {

// The values of a stored tensor as the kernels read them.
Tensor decode(const Tensor& stored, ThreadPool& pool) {
  if (stored.num_dims() == 2) {
    return PackedWeight::pack(stored, pool).unpack();
  }
  return stored.to(DType::kF32);
}

void run_gguf(const GoldenCase& golden, RunContext& context, CaseResult& result) {
  const auto file = GgufFile::open(str_cat(golden.folder, "/", golden.get_string("file")));
  for (const auto& [name, type] : golden.config.at("tensor_types").get_object()) {
    const TensorInfo* info = file->find(name);
    if (info == nullptr) {
      result.fail(str_cat("the file has no tensor ", name));
      continue;
    }
    std::string expected = type.get_string();
    for (char& letter : expected) {
      letter = static_cast<char>(std::tolower(letter));
    }
    if (expected != to_string(info->dtype)) {
      result.fail(str_cat(name, " is ", to_string(info->dtype), ", expected ", expected));
    }
    result.expect(name, decode(file->get(*info), context.pool));
  }
  size_t index = 0;
  for (const auto& [name, type] : golden.config.at("tensor_types").get_object()) {
    if (index < file->tensors().size() && file->tensors()[index].name != name) {
      result.fail(
          str_cat("tensor ", index, " is ", file->tensors()[index].name, ", expected ", name));
    }
    ++index;
  }
}

}  // namespace

void add_checkpoint_kinds(Registry& registry) {
  registry.add_prefix("gguf_", run_gguf);
}

}  // namespace mstar::golden
