// Any bytes: a GGUF header is accepted with values and tensors inside the file, or refused with an
// Error. What is accepted is read as a whole.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "mstar/base/error.h"
#include "mstar/checkpoint/gguf.h"

namespace {

// Every value under every type it could be asked for; a wrong type is an Error.
template <typename Read>
void try_read(Read read) {
  try {
    read();
  } catch (const mstar::Error&) {
  }
}

void read_everything(const mstar::GgufFile& file) {
  for (const mstar::GgufEntry& entry : file.metadata()) {
    try_read([&] { file.get_int(entry.key); });
    try_read([&] { file.get_double(entry.key); });
    try_read([&] { file.find_bool(entry.key); });
    try_read([&] { file.get_string(entry.key); });
    try_read([&] { file.get_strings(entry.key); });
    try_read([&] { file.get_floats(entry.key); });
    try_read([&] { file.get_ints(entry.key); });
  }
  for (const mstar::TensorInfo& info : file.tensors()) {
    const mstar::Tensor tensor = file.get(info);
    unsigned sum = 0;
    for (int64_t index = 0; index < tensor.size_bytes(); ++index) {
      sum += static_cast<unsigned>(tensor.bytes()[index]);
    }
    asm volatile("" : : "r"(sum));  // the reads stay
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    mstar::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const mstar::Error&) {
    return 0;
  }
  // Accepted: open it like a file and read all of it.
  static const std::string path = "/tmp/mstar_gguf_fuzz_" + std::to_string(getpid());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    std::abort();
  }
  std::fwrite(data, 1, size, file);
  std::fclose(file);
  read_everything(*mstar::GgufFile::open(path));
  std::remove(path.c_str());
  return 0;
}
