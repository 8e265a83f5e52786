#include "mstar/text/constrain/json_grammar.h"

#include <algorithm>
#include <string_view>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

namespace {

constexpr int kNeverEnds = JsonGrammar::kMaxNesting + 1;

}  // namespace

void JsonGrammar::complete(const std::string& where, const JsonSchemaLimits& limits) {
  flatten_choices(where, limits);
  find_nesting();
  find_first_bytes();
  if (nodes[root].min_nesting >= kNeverEnds) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[",
                        where,
                        "] no document of at most ",
                        kMaxNesting,
                        " nested objects and lists fits this schema"));
  }
}

// Choices of choices, and of themselves, become lists of what is no choice.
void JsonGrammar::flatten_choices(const std::string& where, const JsonSchemaLimits& limits) {
  size_t work = 0;
  std::vector<std::vector<uint32_t>> flat(choices.size());
  for (size_t choice = 0; choice < flat.size(); ++choice) {
    std::vector<uint32_t> open(choices[choice].rbegin(), choices[choice].rend());
    std::vector<bool> seen(nodes.size(), false);
    work += nodes.size() / 64;
    while (!open.empty()) {
      const uint32_t node = open.back();
      open.pop_back();
      if (++work > (size_t{1} << 22)) {
        throw Error(ErrorCode::kTooLarge,
                    str_cat("[", where, "] anyOf and $ref are too entangled"));
      }
      if (seen[node]) {
        continue;
      }
      seen[node] = true;
      if (nodes[node].kind == Kind::kChoice) {
        const std::vector<uint32_t>& inner = choices[nodes[node].index];
        open.insert(open.end(), inner.rbegin(), inner.rend());
      } else {
        flat[choice].push_back(node);
      }
    }
    if (flat[choice].size() > limits.max_choices) {
      throw Error(ErrorCode::kTooLarge,
                  str_cat("[",
                          where,
                          "] a value has ",
                          flat[choice].size(),
                          " alternatives, at most ",
                          limits.max_choices,
                          " are read"));
    }
  }
  choices = std::move(flat);
}

int JsonGrammar::nesting_of(const Node& node) const {
  int nesting = 0;
  switch (node.kind) {
    case Kind::kObject: {
      const Object& object = objects[node.index];
      for (size_t at = object.next_required[0]; at < object.values.size();
           at = object.next_required[at + 1]) {
        nesting = std::max(nesting, nodes[object.values[at]].min_nesting);
      }
      return std::min(nesting + 1, kNeverEnds);
    }
    case Kind::kArray: {
      const Array& array = arrays[node.index];
      nesting = array.min_items > 0 ? nodes[array.items].min_nesting : 0;
      return std::min(nesting + 1, kNeverEnds);
    }
    case Kind::kChoice: {
      nesting = kNeverEnds;
      for (const uint32_t one : choices[node.index]) {
        nesting = std::min(nesting, nodes[one].min_nesting);
      }
      return nesting;
    }
    default: return 0;
  }
}

// The least solution, from above: each round settles values that nest one deeper.
void JsonGrammar::find_nesting() {
  for (Node& node : nodes) {
    node.min_nesting = kNeverEnds;
  }
  bool changed = true;
  while (changed) {
    changed = false;
    for (Node& node : nodes) {
      const int nesting = nesting_of(node);
      changed = changed || nesting != node.min_nesting;
      node.min_nesting = nesting;
    }
  }
  for (Object& object : objects) {
    for (const uint32_t value : object.values) {
      object.max_member_nesting = std::max(object.max_member_nesting, nodes[value].min_nesting);
    }
  }
}

void JsonGrammar::find_first_bytes() {
  for (Node& node : nodes) {
    switch (node.kind) {
      case Kind::kString: node.first.set('"'); break;
      case Kind::kObject: node.first.set('{'); break;
      case Kind::kArray: node.first.set('['); break;
      case Kind::kNumber:
        for (const char byte : std::string_view("-0123456789")) {
          NumberRules::State state;
          node.first.set(static_cast<uint8_t>(byte),
                         numbers[node.index].step(state, static_cast<uint8_t>(byte)));
        }
        break;
      case Kind::kLiterals:
        for (const uint8_t byte : literals[node.index].first_bytes()) {
          node.first.set(byte);
        }
        break;
      case Kind::kChoice: break;
    }
  }
  for (Node& node : nodes) {
    if (node.kind == Kind::kChoice) {
      for (const uint32_t one : choices[node.index]) {
        node.first |= nodes[one].first;
      }
    }
  }
}

}  // namespace mstar
