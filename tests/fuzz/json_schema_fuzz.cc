// Any bytes as a JSON Schema, and behind a zero byte the choices of a writer: the schema compiles
// or throws Error, within the limits of size and depth; every state of the automaton leads on or is
// an end.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/text/constrain/json_automaton.h"

namespace {

void write(const mstar::JsonGrammar& grammar, std::string_view choices) {
  using mstar::JsonAutomaton;
  JsonAutomaton automaton(grammar);
  JsonAutomaton::Threads threads{JsonAutomaton::begin()};
  for (const char choice : choices.substr(0, 256)) {
    JsonAutomaton::Threads next;
    bool leads_on = false;
    for (int offset = 0; offset < 256 && next.empty(); ++offset) {
      const auto byte = static_cast<uint8_t>(static_cast<unsigned char>(choice) + offset);
      for (const JsonAutomaton::Frame& thread : threads) {
        automaton.step(thread, byte, 0, next);
      }
      leads_on = leads_on || !next.empty();
    }
    const bool may_end = std::ranges::any_of(
        threads, [&](const JsonAutomaton::Frame& thread) { return automaton.may_end(thread); });
    if (!leads_on && !may_end) {
      __builtin_trap();  // nothing can follow, and the document is not complete
    }
    if (next.size() > JsonAutomaton::kMaxThreads) {
      __builtin_trap();
    }
    if (next.empty()) {
      return;
    }
    threads = std::move(next);
    if (automaton.arena_size() > 512) {
      automaton.collect(threads);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(bytes.find('\0'), bytes.size());
  try {
    const mstar::Json schema = mstar::Json::parse(bytes.substr(0, end), "schema", 32);
    const auto grammar = mstar::compile_json_schema(schema, "schema", size % 2 == 0);
    write(*grammar, bytes.substr(std::min(end + 1, bytes.size())));
  } catch (const mstar::Error&) {
  }
  return 0;
}
