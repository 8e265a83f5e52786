// Any bytes as a tokenizer.json: it loads or throws Error; what loads encodes and decodes.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mstar/base/error.h"
#include "mstar/text/detokenizer.h"
#include "mstar/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tokenizer = mstar::Tokenizer::from_json({reinterpret_cast<const char*>(data), size});
    const auto ids =
        tokenizer->encode("Hello w\u00F6rld 123 <s> \u4F60\u597D\n", {.add_template = true});
    tokenizer->decode(ids);
    mstar::Detokenizer detokenizer(tokenizer, false);
    for (const int32_t id : ids) {
      detokenizer.push(id);
    }
    detokenizer.finish();
  } catch (const mstar::Error&) {
  }
  return 0;
}
