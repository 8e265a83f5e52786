// Any bytes as a chat template, rendered over a small conversation: it renders or throws Error,
// within the limits of work, depth and size.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const mstar::Json kMessages = mstar::Json::parse(
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi é <|x|>"},)"
      R"({"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":)"
      R"({"a":[1,2.5,null,true]}}}]},{"role":"user","content":[{"type":"text","text":"a"}]}])");
  try {
    const mstar::ChatTemplate chat({reinterpret_cast<const char*>(data), size});
    mstar::ChatInput input;
    input.messages = kMessages;
    input.add_generation_prompt = true;
    const mstar::MarkedText text = chat.render(input);
    size_t end = 0;
    for (const mstar::TextRange& range : text.user) {
      if (range.begin < end || range.end <= range.begin || range.end > text.text.size()) {
        __builtin_trap();  // ranges must be in order, apart, not empty and inside
      }
      end = range.end;
    }
  } catch (const mstar::Error&) {
  }
  return 0;
}
