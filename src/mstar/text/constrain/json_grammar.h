#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mstar/base/json.h"
#include "mstar/text/constrain/literal_trie.h"
#include "mstar/text/constrain/number_rules.h"

namespace mstar {

// Bounds of a schema. What is over them is Error(kTooLarge).
struct JsonSchemaLimits {
  size_t max_nodes = 4096;             // schemas inside the schema
  size_t max_literal_bytes = 1 << 18;  // names, enum and const values, as JSON
  size_t max_choices = 64;             // alternatives of one value
};

// What documents a schema allows, as tables that JsonAutomaton walks. Every value can be finished:
// schemas that allow nothing are refused when they are compiled. Immutable, thread-safe.
struct JsonGrammar {
  // Containers of a document that are open at the same time. A value that would need more is not
  // begun, so that free-form and recursive schemas end.
  static constexpr int kMaxNesting = 32;
  static constexpr uint32_t kUnbounded = 0xFFFFFFFF;

  enum class Kind : uint8_t { kString, kNumber, kLiterals, kObject, kArray, kChoice };

  // Something a value can be.
  struct Node {
    Kind kind = Kind::kChoice;
    uint32_t index = 0;        // into the table of its kind
    int min_nesting = 0;       // containers that the flattest such value opens
    std::bitset<256> first{};  // bytes it can begin with
  };

  struct String {
    uint32_t min_length = 0;  // code points
    uint32_t max_length = kUnbounded;
  };

  // Members come in the order of the schema, those that are not required may be missing; then
  // further ones, if `extra` says what they are.
  struct Object {
    LiteralTrie keys;              // "name" with its quotes, by member
    LiteralTrie names;             // the same in UTF-8: what keys that it does not name must not be
    std::vector<uint32_t> values;  // [members] nodes
    std::vector<uint32_t> next_required;  // [members + 1] first required member from here on
    uint32_t extra = kUnbounded;          // node; kUnbounded: none
    int max_member_nesting = 0;           // largest of the members' min_nesting
  };

  struct Array {
    uint32_t items = 0;
    uint32_t min_items = 0;
    uint32_t max_items = kUnbounded;
  };

  std::vector<Node> nodes;
  std::vector<String> strings;
  std::vector<NumberRules> numbers;
  std::vector<LiteralTrie> literals;
  std::vector<Object> objects;
  std::vector<Array> arrays;
  std::vector<std::vector<uint32_t>> choices;  // of nodes that are no choices
  uint32_t root = 0;

  // Fills in what follows from the tables: choices become lists of what is no choice, and each node
  // learns how deep it must nest and how it begins. Throws Error(kTooLarge), and
  // Error(kInvalidArgument) when there is no document.
  void complete(const std::string& where, const JsonSchemaLimits& limits);

 private:
  void flatten_choices(const std::string& where, const JsonSchemaLimits& limits);
  int nesting_of(const Node& node) const;
  void find_nesting();
  void find_first_bytes();
};

// Compiles a JSON Schema. The subset (docs/server.md, "Answers in JSON"): type, properties,
// required, additionalProperties, items, minItems, maxItems, enum, const, minLength, maxLength,
// minimum, maximum, exclusiveMinimum, exclusiveMaximum, anyOf, $ref into the document, $defs;
// annotations are read over. `ascii_only`: literals are spelled with escapes.
// Throws Error(kInvalidArgument | kUnsupported | kTooLarge) whose message names the path of the
// keyword, which begins with `where`.
std::shared_ptr<const JsonGrammar> compile_json_schema(const Json& schema,
                                                       const std::string& where,
                                                       bool ascii_only,
                                                       const JsonSchemaLimits& limits = {});

}  // namespace mstar
