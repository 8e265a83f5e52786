#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mstar/text/constrain/json_grammar.h"

namespace mstar {

// Reads a JSON document byte by byte as a pushdown automaton over a JsonGrammar. Where the grammar
// leaves several readings open (anyOf) they are followed side by side as threads; a thread is its
// top frame and a chain of parents in an arena.
//
// What is written is compact JSON in UTF-8, with whitespace only where it is usual and only so much
// of it: between tokens but not before ',' or ':', one space or a line break and up to 20
// spaces and tabs; none around the document. Members keep the schema's order. From every state that
// is reached there is a way to the end of a document.
//
// One thread of execution at a time; the grammar must outlive it.
class JsonAutomaton {
 public:
  static constexpr uint32_t kMaxIndent = 20;
  // Readings followed side by side. More are dropped: what is written stays a document of the
  // schema, some documents can then no longer be written.
  static constexpr size_t kMaxThreads = 64;

  struct Frame {
    uint32_t node = kDone;
    uint32_t state = 0;    // phase, whitespace, place inside a character
    uint64_t counter = 0;  // characters, items, members, digits
    int32_t parent = -1;   // in the arena
    int32_t nesting = 0;   // open containers, this one included

    friend bool operator==(const Frame&, const Frame&) = default;
  };

  static constexpr uint32_t kDone = 0xFFFFFFFF;   // Frame::node behind the document
  static constexpr uint32_t kBegin = 0xFFFFFFFE;  // before it

  using Threads = std::vector<Frame>;

  explicit JsonAutomaton(const JsonGrammar& grammar) : grammar_(grammar) {}

  // The state before the first byte.
  static Frame begin() {
    return {.node = kBegin, .state = 0, .counter = 0, .parent = -1, .nesting = 0};
  }

  // Appends to `out`, behind its first `base` frames, what `thread` becomes by one byte: nothing
  // when no document goes on so. Equal threads are appended once. `thread` may lie in `out`.
  void step(Frame thread, uint8_t byte, size_t base, Threads& out);

  // Whether the document may end here.
  bool may_end(const Frame& thread) const;

  // Whether `thread` stands between two characters of a string whose text can go on freely, and for
  // how many more (at most `most`); 0 when it does not.
  uint32_t free_characters(const Frame& thread, uint32_t most) const;

  // Appends what decides how `thread` goes on over the next `horizon` bytes at least: equal keys,
  // equal ways.
  void append_key(const Frame& thread, uint32_t horizon, std::vector<uint64_t>& key) const;

  // The arena only grows while bytes are read; a walk that goes back gives its part back.
  size_t arena_size() const { return arena_.size(); }

  void shrink_arena(size_t size) { arena_.resize(size); }

  // Throws out what none of `threads` needs.
  void collect(Threads& threads);

  void clear() { arena_.clear(); }

 private:
  void add(const Frame& frame, size_t base, Threads& out) const;
  int32_t push(const Frame& frame);
  void finish_value(const Frame& frame, size_t base, Threads& out) const;
  void start(uint32_t node, uint8_t byte, const Frame& parent, size_t base, Threads& out);
  void start_below(uint32_t node,
                   uint8_t byte,
                   int32_t parent,
                   int32_t nesting,
                   size_t base,
                   Threads& out);
  void step_behind(const Frame& frame, uint8_t byte, size_t base, Threads& out);
  void step_string(Frame frame, uint8_t byte, size_t base, Threads& out) const;
  void step_number(const Frame& frame, uint8_t byte, size_t base, Threads& out);
  void step_literals(const Frame& frame, uint8_t byte, size_t base, Threads& out);
  void step_object(Frame frame, uint8_t byte, size_t base, Threads& out);
  void step_key(Frame frame, uint8_t byte, size_t base, Threads& out) const;
  void step_extra_key(Frame frame, uint8_t byte, size_t base, Threads& out) const;
  void step_array(Frame frame, uint8_t byte, size_t base, Threads& out);
  bool fits(uint32_t node, int32_t nesting) const;
  bool may_follow(const JsonGrammar::Object& object, uint32_t next, int32_t nesting) const;
  bool has_open_member(const JsonGrammar::Object& object,
                       uint32_t trie_node,
                       uint32_t next,
                       int32_t nesting) const;
  bool has_extra(const JsonGrammar::Object& object, uint32_t next, int32_t nesting) const;
  uint64_t key_counter(const Frame& frame, uint32_t horizon) const;

  const JsonGrammar& grammar_;
  std::vector<Frame> arena_;
};

}  // namespace mstar
