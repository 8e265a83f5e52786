#include "mstar/text/constrain/json_automaton.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/text/constrain/json_string.h"

namespace mstar {

namespace {

using Frame = JsonAutomaton::Frame;
using Kind = JsonGrammar::Kind;

// Frame::state of containers: phase, then whitespace, then the place inside a free key.
enum Phase : uint32_t {
  kOpen,      // behind '{' or '['
  kMore,      // behind ','
  kKey,       // inside a key of the schema
  kExtraKey,  // inside a key that the schema does not name
  kColon,     // behind a key
  kValue,     // behind ':'
  kAfter,     // behind a member or an item
};

// Whitespace: nothing yet, one space (no more then), or a line break and so many behind it.
constexpr uint32_t kNoSpace = 0;
constexpr uint32_t kOneSpace = 255;

uint32_t phase_of(const Frame& frame) {
  return frame.state & 0xFF;
}

uint32_t space_of(const Frame& frame) {
  return frame.state >> 8 & 0xFF;
}

uint32_t inside_of(const Frame& frame) {
  return frame.state >> 16;
}

void set_phase(Frame& frame, uint32_t phase, uint32_t inside = 0) {
  frame.state = phase | inside << 16;
}

// Objects: the first member that may come next, and the member or trie node at hand.
uint32_t next_of(const Frame& frame) {
  return static_cast<uint32_t>(frame.counter);
}

uint32_t hand_of(const Frame& frame) {
  return static_cast<uint32_t>(frame.counter >> 32);
}

void set_counter(Frame& frame, uint32_t next, uint32_t hand) {
  frame.counter = next | uint64_t{hand} << 32;
}

// Moves on over whitespace; false where this byte is none that may come.
bool step_space(Frame& frame, uint8_t byte) {
  const uint32_t space = space_of(frame);
  uint32_t next = kNoSpace;
  if (space == kNoSpace) {
    next = byte == ' ' ? kOneSpace : byte == '\n' ? 1 : kNoSpace;
  } else if (space <= JsonAutomaton::kMaxIndent && (byte == ' ' || byte == '\t')) {
    next = space + 1;
  }
  if (next == kNoSpace) {
    return false;
  }
  frame.state = (frame.state & ~0xFF00U) | next << 8;
  return true;
}

// Numbers: the digits are the counter, the rest the state.
NumberRules::State number_state(const Frame& frame) {
  NumberRules::State state;
  state.phase = static_cast<uint8_t>(frame.state & 0xFF);
  state.num_digits = static_cast<uint8_t>(frame.state >> 8 & 0xFF);
  state.num_fraction = static_cast<uint8_t>(frame.state >> 16 & 0xFF);
  state.negative = frame.state >> 24 != 0;
  state.digits = frame.counter;
  return state;
}

void set_number(Frame& frame, const NumberRules::State& state) {
  frame.state = state.phase | uint32_t{state.num_digits} << 8 | uint32_t{state.num_fraction} << 16 |
                uint32_t{state.negative} << 24;
  frame.counter = state.digits;
}

}  // namespace

void JsonAutomaton::add(const Frame& frame, size_t base, Threads& out) const {
  if (out.size() - base >= kMaxThreads) {
    return;
  }
  for (size_t index = base; index < out.size(); ++index) {
    if (out[index] == frame) {
      return;
    }
  }
  out.push_back(frame);
}

int32_t JsonAutomaton::push(const Frame& frame) {
  arena_.push_back(frame);
  return static_cast<int32_t>(arena_.size() - 1);
}

bool JsonAutomaton::fits(uint32_t node, int32_t nesting) const {
  return nesting + grammar_.nodes[node].min_nesting <= JsonGrammar::kMaxNesting;
}

// The value is complete: its parent goes on as it was left.
void JsonAutomaton::finish_value(const Frame& frame, size_t base, Threads& out) const {
  if (frame.parent < 0) {
    add({.node = kDone, .state = 0, .counter = 0, .parent = -1, .nesting = 0}, base, out);
    return;
  }
  add(arena_[static_cast<size_t>(frame.parent)], base, out);
}

// A value that has no end of its own is over because this byte belongs to what is around it.
void JsonAutomaton::step_behind(const Frame& frame, uint8_t byte, size_t base, Threads& out) {
  if (frame.parent >= 0) {
    step(arena_[static_cast<size_t>(frame.parent)], byte, base, out);
  }
}

// `parent` is the container as it will be when the value is over.
void JsonAutomaton::start(uint32_t node,
                          uint8_t byte,
                          const Frame& parent,
                          size_t base,
                          Threads& out) {
  if (grammar_.nodes[node].first.test(byte)) {
    start_below(node, byte, push(parent), parent.nesting, base, out);
  }
}

void JsonAutomaton::start_below(uint32_t node,
                                uint8_t byte,
                                int32_t parent,
                                int32_t nesting,
                                size_t base,
                                Threads& out) {
  const JsonGrammar::Node& of = grammar_.nodes[node];
  if (!of.first.test(byte) || !fits(node, nesting)) {
    return;
  }
  Frame frame{.node = node, .state = 0, .counter = 0, .parent = parent, .nesting = nesting};
  switch (of.kind) {
    case Kind::kString:
      frame.state = json_string::kBetween;
      add(frame, base, out);
      return;
    case Kind::kNumber: {
      NumberRules::State state;
      if (grammar_.numbers[of.index].step(state, byte)) {
        set_number(frame, state);
        add(frame, base, out);
      }
      return;
    }
    case Kind::kLiterals:
      frame.state = LiteralTrie::kRoot;
      step_literals(frame, byte, base, out);
      return;
    case Kind::kObject:
    case Kind::kArray:
      set_phase(frame, kOpen);
      ++frame.nesting;
      add(frame, base, out);
      return;
    case Kind::kChoice:
      for (const uint32_t alternative : grammar_.choices[of.index]) {
        start_below(alternative, byte, parent, nesting, base, out);
      }
      return;
  }
}

void JsonAutomaton::step(Frame thread, uint8_t byte, size_t base, Threads& out) {
  if (thread.node == kDone) {
    return;
  }
  if (thread.node == kBegin) {
    start_below(grammar_.root, byte, -1, 0, base, out);
    return;
  }
  switch (grammar_.nodes[thread.node].kind) {
    case Kind::kString: step_string(thread, byte, base, out); return;
    case Kind::kNumber: step_number(thread, byte, base, out); return;
    case Kind::kLiterals: step_literals(thread, byte, base, out); return;
    case Kind::kObject: step_object(thread, byte, base, out); return;
    case Kind::kArray: step_array(thread, byte, base, out); return;
    case Kind::kChoice: MSTAR_CHECK(false, "a choice is no state"); return;
  }
}

void JsonAutomaton::step_string(Frame frame, uint8_t byte, size_t base, Threads& out) const {
  const JsonGrammar::String& limits = grammar_.strings[grammar_.nodes[frame.node].index];
  const uint8_t next = json_string::kNext[frame.state][byte];
  if (next == json_string::kReject) {
    return;
  }
  if (next == json_string::kClose) {
    if (frame.counter >= limits.min_length) {
      finish_value(frame, base, out);
    }
    return;
  }
  if (frame.state == json_string::kBetween) {  // a character begins
    if (frame.counter >= limits.max_length) {
      return;
    }
    // Counting stops where it cannot matter any more, so that states of long strings are equal.
    if (limits.max_length != JsonGrammar::kUnbounded || frame.counter < limits.min_length) {
      ++frame.counter;
    }
  }
  frame.state = next;
  add(frame, base, out);
}

void JsonAutomaton::step_number(const Frame& frame, uint8_t byte, size_t base, Threads& out) {
  const NumberRules& rules = grammar_.numbers[grammar_.nodes[frame.node].index];
  NumberRules::State state = number_state(frame);
  if (rules.may_end(state)) {
    step_behind(frame, byte, base, out);
  }
  if (rules.step(state, byte)) {
    Frame next = frame;
    set_number(next, state);
    add(next, base, out);
  }
}

void JsonAutomaton::step_literals(const Frame& frame, uint8_t byte, size_t base, Threads& out) {
  const LiteralTrie& trie = grammar_.literals[grammar_.nodes[frame.node].index];
  if (trie.value(frame.state) >= 0) {
    step_behind(frame, byte, base, out);
  }
  Frame next = frame;
  next.state = trie.step(frame.state, byte);
  if (next.state == LiteralTrie::kNone) {
    return;
  }
  if (trie.is_leaf(next.state)) {
    finish_value(next, base, out);
  } else {
    add(next, base, out);
  }
}

// Whether some member that lies below the trie's node may come now: from `next` up to the first
// required one.
bool JsonAutomaton::has_open_member(const JsonGrammar::Object& object,
                                    uint32_t trie_node,
                                    uint32_t next,
                                    int32_t nesting) const {
  if (next >= object.values.size()) {
    return false;
  }
  const auto below = object.keys.values_below(trie_node);
  const auto last = static_cast<int32_t>(object.next_required[next]);
  const bool all_fit = nesting + object.max_member_nesting <= JsonGrammar::kMaxNesting;
  for (auto at = std::ranges::lower_bound(below, static_cast<int32_t>(next));
       at != below.end() && *at <= last;
       ++at) {
    if (all_fit || fits(object.values[static_cast<size_t>(*at)], nesting)) {
      return true;
    }
  }
  return false;
}

bool JsonAutomaton::has_extra(const JsonGrammar::Object& object,
                              uint32_t next,
                              int32_t nesting) const {
  return object.extra != JsonGrammar::kUnbounded &&
         object.next_required[next] == object.values.size() && fits(object.extra, nesting);
}

// Whether a further member can come.
bool JsonAutomaton::may_follow(const JsonGrammar::Object& object,
                               uint32_t next,
                               int32_t nesting) const {
  return has_open_member(object, LiteralTrie::kRoot, next, nesting) ||
         has_extra(object, next, nesting);
}

void JsonAutomaton::step_object(Frame frame, uint8_t byte, size_t base, Threads& out) {
  const JsonGrammar::Object& object = grammar_.objects[grammar_.nodes[frame.node].index];
  const uint32_t next = next_of(frame);
  const bool may_close = object.next_required[next] == object.values.size();
  switch (phase_of(frame)) {
    case kOpen:
    case kMore: {
      const bool is_open = phase_of(frame) == kOpen;
      if (byte == '"') {
        if (has_extra(object, next, frame.nesting)) {
          Frame extra = frame;
          set_phase(extra, kExtraKey, json_string::kBetween);
          set_counter(extra, next, object.names.step(LiteralTrie::kRoot, '"'));
          add(extra, base, out);
        }
        set_phase(frame, kKey);
        set_counter(frame, next, LiteralTrie::kRoot);
        step_key(frame, byte, base, out);
      } else if (byte == '}') {
        if (is_open && may_close) {
          finish_value(frame, base, out);
        }
      } else if (step_space(frame, byte)) {
        add(frame, base, out);
      }
      return;
    }
    case kKey: step_key(frame, byte, base, out); return;
    case kExtraKey: step_extra_key(frame, byte, base, out); return;
    case kColon:
      if (byte == ':') {
        set_phase(frame, kValue);
        add(frame, base, out);
      }
      return;
    case kValue: {
      if (step_space(frame, byte)) {
        add(frame, base, out);
        return;
      }
      const uint32_t member = hand_of(frame);
      const bool is_extra = member >= object.values.size();
      set_phase(frame, kAfter);
      set_counter(frame, is_extra ? static_cast<uint32_t>(object.values.size()) : member + 1, 0);
      start(is_extra ? object.extra : object.values[member], byte, frame, base, out);
      return;
    }
    default:  // kAfter
      if (byte == '}') {
        if (may_close) {
          finish_value(frame, base, out);
        }
      } else if (byte == ',') {
        if (space_of(frame) == kNoSpace && may_follow(object, next, frame.nesting)) {
          set_phase(frame, kMore);
          add(frame, base, out);
        }
      } else if (may_close && step_space(frame, byte)) {
        add(frame, base, out);
      }
  }
}

void JsonAutomaton::step_key(Frame frame, uint8_t byte, size_t base, Threads& out) const {
  const JsonGrammar::Object& object = grammar_.objects[grammar_.nodes[frame.node].index];
  const uint32_t next = next_of(frame);
  const uint32_t to = object.keys.step(hand_of(frame), byte);
  if (to == LiteralTrie::kNone || !has_open_member(object, to, next, frame.nesting)) {
    return;
  }
  if (object.keys.value(to) >= 0) {  // behind the closing quote
    set_phase(frame, kColon);
    set_counter(frame, next, static_cast<uint32_t>(object.keys.value(to)));
  } else {
    set_counter(frame, next, to);
  }
  add(frame, base, out);
}

// A key of the client's own must be none of the schema's, whose rules it would break: it is
// followed in their trie until it leaves it. Where there are such keys nothing is escaped, for that
// would spell them otherwise.
void JsonAutomaton::step_extra_key(Frame frame, uint8_t byte, size_t base, Threads& out) const {
  const JsonGrammar::Object& object = grammar_.objects[grammar_.nodes[frame.node].index];
  const bool has_names = !object.values.empty();
  const uint8_t to = json_string::kNext[inside_of(frame)][byte];
  if (to == json_string::kReject || (has_names && byte == '\\')) {
    return;
  }
  const uint32_t trie_node = hand_of(frame);
  const uint32_t trie_next =
      trie_node == LiteralTrie::kNone ? LiteralTrie::kNone : object.names.step(trie_node, byte);
  if (to == json_string::kClose) {
    if (trie_next != LiteralTrie::kNone) {
      return;  // a name of the schema
    }
    set_phase(frame, kColon);
    set_counter(frame, next_of(frame), static_cast<uint32_t>(object.values.size()));
  } else {
    set_phase(frame, kExtraKey, to);
    set_counter(frame, next_of(frame), trie_next);
  }
  add(frame, base, out);
}

void JsonAutomaton::step_array(Frame frame, uint8_t byte, size_t base, Threads& out) {
  const JsonGrammar::Array& array = grammar_.arrays[grammar_.nodes[frame.node].index];
  const bool may_close = frame.counter >= array.min_items;
  const bool may_grow = frame.counter < array.max_items && fits(array.items, frame.nesting);
  if (phase_of(frame) == kAfter) {
    if (byte == ']') {
      if (may_close) {
        finish_value(frame, base, out);
      }
    } else if (byte == ',') {
      if (space_of(frame) == kNoSpace && may_grow) {
        set_phase(frame, kMore);
        add(frame, base, out);
      }
    } else if (may_close && step_space(frame, byte)) {
      add(frame, base, out);
    }
    return;
  }
  if (byte == ']') {
    if (phase_of(frame) == kOpen && may_close) {
      finish_value(frame, base, out);
    }
    return;
  }
  if (step_space(frame, byte)) {
    add(frame, base, out);
    return;
  }
  if (!may_grow) {
    return;
  }
  set_phase(frame, kAfter);
  if (array.max_items != JsonGrammar::kUnbounded || frame.counter < array.min_items) {
    ++frame.counter;
  }
  start(array.items, byte, frame, base, out);
}

bool JsonAutomaton::may_end(const Frame& thread) const {
  if (thread.node == kDone) {
    return true;
  }
  if (thread.node == kBegin || thread.parent >= 0) {
    return false;
  }
  const JsonGrammar::Node& node = grammar_.nodes[thread.node];
  if (node.kind == Kind::kNumber) {
    return grammar_.numbers[node.index].may_end(number_state(thread));
  }
  return node.kind == Kind::kLiterals && grammar_.literals[node.index].value(thread.state) >= 0;
}

uint32_t JsonAutomaton::free_characters(const Frame& thread, uint32_t most) const {
  if (thread.node == kDone || thread.node == kBegin) {
    return 0;
  }
  const JsonGrammar::Node& node = grammar_.nodes[thread.node];
  if (node.kind == Kind::kString && thread.state == json_string::kBetween) {
    const JsonGrammar::String& limits = grammar_.strings[node.index];
    return limits.max_length == JsonGrammar::kUnbounded
               ? most
               : static_cast<uint32_t>(
                     std::min<uint64_t>(limits.max_length - thread.counter, most));
  }
  // Only its end decides whether a key is one of the schema's.
  if (node.kind == Kind::kObject && phase_of(thread) == kExtraKey &&
      inside_of(thread) == json_string::kBetween) {
    return most;
  }
  return 0;
}

// Counts matter only as far as a token can move them.
uint64_t JsonAutomaton::key_counter(const Frame& frame, uint32_t horizon) const {
  const JsonGrammar::Node& node = grammar_.nodes[frame.node];
  const auto clamped = [&](uint64_t least, uint64_t most) {
    const uint64_t missing = least > frame.counter ? least - frame.counter : 0;
    const uint64_t room = most > frame.counter ? most - frame.counter : 0;
    const uint64_t cap = uint64_t{horizon} + 1;
    return std::min(missing, cap) << 32 | std::min(room, cap);
  };
  if (node.kind == Kind::kString) {
    const JsonGrammar::String& limits = grammar_.strings[node.index];
    return clamped(limits.min_length, limits.max_length);
  }
  if (node.kind == Kind::kArray) {
    const JsonGrammar::Array& limits = grammar_.arrays[node.index];
    return clamped(limits.min_items, limits.max_items);
  }
  return frame.counter;
}

void JsonAutomaton::append_key(const Frame& thread,
                               uint32_t horizon,
                               std::vector<uint64_t>& key) const {
  const Frame* frame = &thread;
  while (true) {
    key.push_back(uint64_t{frame->node} << 32 | frame->state);
    if (frame->node == kDone || frame->node == kBegin) {
      return;
    }
    key.push_back(key_counter(*frame, horizon));
    if (frame->parent < 0) {
      return;
    }
    frame = &arena_[static_cast<size_t>(frame->parent)];
  }
}

void JsonAutomaton::collect(Threads& threads) {
  std::vector<int32_t> moved(arena_.size(), -1);
  for (const Frame& thread : threads) {
    for (int32_t at = thread.parent; at >= 0 && moved[static_cast<size_t>(at)] < 0;
         at = arena_[static_cast<size_t>(at)].parent) {
      moved[static_cast<size_t>(at)] = 0;
    }
  }
  // Parents lie before their children.
  size_t kept = 0;
  const auto place = [&](int32_t parent) {
    return parent < 0 ? parent : moved[static_cast<size_t>(parent)];
  };
  for (size_t at = 0; at < arena_.size(); ++at) {
    if (moved[at] >= 0) {
      arena_[kept] = arena_[at];
      arena_[kept].parent = place(arena_[kept].parent);
      moved[at] = static_cast<int32_t>(kept++);
    }
  }
  arena_.resize(kept);
  for (Frame& thread : threads) {
    thread.parent = place(thread.parent);
  }
}

}  // namespace mstar
