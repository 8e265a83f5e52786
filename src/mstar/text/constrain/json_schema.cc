// From JSON Schema to JsonGrammar: every schema inside the schema becomes a node, references
// become the node they name, and what is allowed nowhere is found before anything runs. No
// recursion: schemas wait in a list, whatever their nesting.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/text/constrain/json_grammar.h"
#include "mstar/text/utf8.h"

namespace mstar {

namespace {

using Kind = JsonGrammar::Kind;

// Of names in paths: a hostile one must not be copied for every schema below it.
constexpr size_t kShownName = 64;

constexpr std::array<std::string_view, 14> kAnnotations = {"$schema",
                                                           "$id",
                                                           "$anchor",
                                                           "$comment",
                                                           "$defs",
                                                           "definitions",
                                                           "title",
                                                           "description",
                                                           "default",
                                                           "example",
                                                           "examples",
                                                           "deprecated",
                                                           "readOnly",
                                                           "writeOnly"};

constexpr std::array<std::string_view, 7> kTypes =
    {"object", "array", "string", "number", "integer", "boolean", "null"};

// Keywords that say something about one type only.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kKeywords = {
    {{"properties", "object"},
     {"required", "object"},
     {"additionalProperties", "object"},
     {"items", "array"},
     {"minItems", "array"},
     {"maxItems", "array"},
     {"minLength", "string"},
     {"maxLength", "string"},
     {"minimum", "number"},
     {"maximum", "number"},
     {"exclusiveMinimum", "number"},
     {"exclusiveMaximum", "number"}}};

bool is_annotation(std::string_view keyword) {
  return std::ranges::find(kAnnotations, keyword) != kAnnotations.end();
}

// The type that a keyword speaks about, or "".
std::string_view type_of_keyword(std::string_view keyword) {
  const auto found =
      std::ranges::find(kKeywords, keyword, &std::pair<std::string_view, std::string_view>::first);
  return found == kKeywords.end() ? std::string_view() : found->second;
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, str_cat("[", where, "] ", what));
}

// A value as it is written into the document. With `ascii_only` what is not ASCII is escaped, as
// pairs of surrogates beyond U+FFFF.
std::string spell(const Json& value, bool ascii_only) {
  const std::string text = value.dump();
  if (!ascii_only || is_ascii(text)) {
    return text;
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  const auto unit = [&](uint32_t code) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) {
      out += kHex[code >> shift & 15];
    }
  };
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.value < 0x80) {
      out += text[at];
    } else if (point.value < 0x10000) {
      unit(point.value);
    } else {
      unit(0xD800 + ((point.value - 0x10000) >> 10));
      unit(0xDC00 + ((point.value - 0x10000) & 0x3FF));
    }
    at += point.num_bytes;
  }
  return out;
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "integer") {
    return value.is_integer() ||
           (value.is_number() &&
            value.get_double() == static_cast<double>(static_cast<int64_t>(
                                      std::clamp(value.get_double(), -9e18, 9e18))));
  }
  if (type == "number") {
    return value.is_number();
  }
  return type == value.type_name();
}

class Compiler {
 public:
  Compiler(const Json& document, std::string where, bool ascii_only, const JsonSchemaLimits& limits)
      : document_(document),
        where_(std::move(where)),
        ascii_only_(ascii_only),
        limits_(limits),
        out_(std::make_shared<JsonGrammar>()) {}

  std::shared_ptr<const JsonGrammar> compile() {
    out_->root = node_of(document_, where_);
    while (!waiting_.empty()) {
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      read(next);
    }
    out_->complete(where_, limits_);
    return out_;
  }

 private:
  struct Waiting {
    const Json* schema;
    uint32_t node;
    std::string where;
  };

  uint32_t add_node() {
    if (out_->nodes.size() >= limits_.max_nodes) {
      throw Error(
          ErrorCode::kTooLarge,
          str_cat("[", where_, "] more than ", limits_.max_nodes, " schemas inside the schema"));
    }
    out_->nodes.emplace_back();
    return static_cast<uint32_t>(out_->nodes.size() - 1);
  }

  uint32_t add(Kind kind, size_t index) {
    const uint32_t node = add_node();
    set(node, kind, index);
    return node;
  }

  void set(uint32_t node, Kind kind, size_t index) {
    out_->nodes[node].kind = kind;
    out_->nodes[node].index = static_cast<uint32_t>(index);
  }

  void set_choice(uint32_t node, std::vector<uint32_t> alternatives) {
    set(node, Kind::kChoice, out_->choices.size());
    out_->choices.push_back(std::move(alternatives));
  }

  // The node of a schema; it is read later.
  uint32_t node_of(const Json& schema, std::string where) {
    if (const auto known = known_.find(&schema); known != known_.end()) {
      return known->second;
    }
    if (!schema.is_object() && !schema.is_bool()) {
      fail(where, str_cat("found ", schema.type_name(), ", expected a schema"));
    }
    const uint32_t node = add_node();
    known_[&schema] = node;
    waiting_.push_back({&schema, node, std::move(where)});
    return node;
  }

  uint32_t literals(std::vector<std::string> texts, const std::string& where) {
    for (const std::string& text : texts) {
      literal_bytes_ += text.size();
    }
    if (literal_bytes_ > limits_.max_literal_bytes) {
      throw Error(ErrorCode::kTooLarge,
                  str_cat("[",
                          where,
                          "] names and values of the schema are longer than ",
                          limits_.max_literal_bytes,
                          " bytes"));
    }
    out_->literals.emplace_back(texts);
    return static_cast<uint32_t>(out_->literals.size() - 1);
  }

  // Any JSON value.
  uint32_t any_node() {
    if (!any_) {
      any_ = add_node();
      std::vector<uint32_t> alternatives;
      for (const std::string_view type : kTypes) {
        if (type != "integer") {
          alternatives.push_back(free_node(type));
        }
      }
      set_choice(*any_, std::move(alternatives));
    }
    return *any_;
  }

  // Any value of one type.
  uint32_t free_node(std::string_view type) {
    if (const auto known = free_.find(type); known != free_.end()) {
      return known->second;
    }
    const uint32_t node = add_node();
    free_.emplace(type, node);
    static const Json kEmpty = Json::object();
    read_type(type, {&kEmpty, node, where_});
    return node;
  }

  void read(const Waiting& from) {
    if (from.schema->is_bool()) {
      if (!from.schema->get_bool()) {
        set_choice(from.node, {});
      } else {
        set_choice(from.node, {any_node()});
      }
      return;
    }
    for (const char* keyword : {"$ref", "anyOf", "const", "enum"}) {
      if (from.schema->contains(keyword)) {
        check_keywords(from, keyword);
        if (keyword == std::string_view("$ref")) {
          read_ref(from);
        } else if (keyword == std::string_view("anyOf")) {
          read_any_of(from);
        } else {
          read_values(from);
        }
        return;
      }
    }
    const std::vector<std::string> types = types_of(from);
    check_keywords(from, "");
    if (types.empty()) {
      set_choice(from.node, {any_node()});
    } else if (types.size() == 1) {
      read_type(types.front(), from);
    } else {
      std::vector<uint32_t> alternatives;
      for (const std::string& type : types) {
        alternatives.push_back(add_node());
        read_type(type, {from.schema, alternatives.back(), from.where});
      }
      set_choice(from.node, std::move(alternatives));
    }
  }

  // Everything must be understood. Beside `alone` only annotations may stand (and a type beside
  // values).
  void check_keywords(const Waiting& from, std::string_view alone) {
    for (const auto& [keyword, value] : from.schema->get_object()) {
      const bool is_values = alone == "enum" || alone == "const";
      if (is_annotation(keyword) || keyword == alone || (is_values && keyword == "type")) {
        continue;
      }
      const std::string shown = str_cat(from.where, ".", keyword.substr(0, kShownName));
      const bool is_known = keyword == "type" || !type_of_keyword(keyword).empty() ||
                            keyword == "$ref" || keyword == "anyOf" || keyword == "const" ||
                            keyword == "enum";
      if (is_known && alone.empty()) {
        continue;
      }
      throw Error(ErrorCode::kUnsupported,
                  is_known ? str_cat("[", shown, "] is not supported beside \"", alone, "\"")
                           : str_cat("[", shown, "] this keyword is not supported"));
    }
  }

  // The types a value may have; none: any. Without "type" the keywords tell.
  std::vector<std::string> types_of(const Waiting& from) {
    std::vector<std::string> types;
    const std::string where = from.where + ".type";
    if (const Json* type = from.schema->find("type")) {
      const auto take = [&](const Json& word) {
        if (!word.is_string() || std::ranges::find(kTypes, word.get_string()) == kTypes.end()) {
          fail(where,
               str_cat("found ",
                       word.dump().substr(0, 100),
                       ", expected one of ",
                       str_join(kTypes, ", ")));
        }
        if (std::ranges::find(types, word.get_string()) == types.end()) {
          types.push_back(word.get_string());
        }
      };
      if (type->is_array()) {
        for (const Json& word : type->get_array()) {
          take(word);
        }
        if (types.empty()) {
          fail(where, "found an empty list, expected types");
        }
      } else {
        take(*type);
      }
      return types;
    }
    for (const auto& [keyword, value] : from.schema->get_object()) {
      const std::string_view type = type_of_keyword(keyword);
      if (!type.empty() && std::ranges::find(types, type) == types.end()) {
        types.emplace_back(type);
      }
    }
    if (types.size() > 1) {
      fail(where, str_cat("missing; the keywords speak about ", str_join(types, " and ")));
    }
    return types;
  }

  void read_type(std::string_view type, const Waiting& from) {
    if (type == "object") {
      read_object(from);
    } else if (type == "array") {
      read_array(from);
    } else if (type == "string") {
      const auto [least, most] = length_range(from, "minLength", "maxLength");
      set(from.node, Kind::kString, out_->strings.size());
      out_->strings.push_back({least, most});
    } else if (type == "number" || type == "integer") {
      read_number(from, type == "integer");
    } else {
      set(from.node,
          Kind::kLiterals,
          literals(type == "null" ? std::vector<std::string>{"null"}
                                  : std::vector<std::string>{"true", "false"},
                   from.where));
    }
  }

  std::pair<uint32_t, uint32_t> length_range(const Waiting& from,
                                             const char* min_name,
                                             const char* max_name) {
    constexpr int64_t kMost = 1 << 30;
    const auto take = [&](const char* name, uint32_t fallback) {
      const Json* value = from.schema->find(name);
      if (value == nullptr) {
        return fallback;
      }
      if (!value->is_number() || !(value->get_double() >= 0.0) || !has_type(*value, "integer")) {
        fail(
            str_cat(from.where, ".", name),
            str_cat("found ", value->dump().substr(0, 100), ", expected a whole number from 0 on"));
      }
      return static_cast<uint32_t>(std::min<double>(value->get_double(), kMost));
    };
    const uint32_t least = take(min_name, 0);
    const uint32_t most = take(max_name, JsonGrammar::kUnbounded);
    if (least > most) {
      fail(str_cat(from.where, ".", min_name),
           str_cat("is ", least, ", above ", max_name, ", ", most));
    }
    return {least, most};
  }

  void read_number(const Waiting& from, bool integer) {
    NumberRules::Bounds bounds;
    const auto take = [&](const char* name, bool exclusive, bool upper) {
      const Json* value = from.schema->find(name);
      if (value == nullptr) {
        return;
      }
      const std::string where = str_cat(from.where, ".", name);
      if (!value->is_number()) {
        fail(where, str_cat("found ", value->type_name(), ", expected a number"));
      }
      const double bound = value->get_double();
      std::optional<double>& kept = upper ? bounds.maximum : bounds.minimum;
      bool& kept_exclusive = upper ? bounds.exclusive_maximum : bounds.exclusive_minimum;
      const bool tighter = !kept || (upper ? bound < *kept : bound > *kept);
      if (tighter || bound == *kept) {
        kept_exclusive = exclusive || (!tighter && kept_exclusive);
        kept = bound;
      }
    };
    take("minimum", false, false);
    take("exclusiveMinimum", true, false);
    take("maximum", false, true);
    take("exclusiveMaximum", true, true);
    const NumberRules rules(integer, bounds);
    if (!rules.is_possible()) {
      fail(from.where, "no number of at most 17 digits lies between the bounds");
    }
    set(from.node, Kind::kNumber, out_->numbers.size());
    out_->numbers.push_back(rules);
  }

  void read_array(const Waiting& from) {
    const auto [least, most] = length_range(from, "minItems", "maxItems");
    const Json* items = from.schema->find("items");
    const uint32_t node = items == nullptr ? any_node() : node_of(*items, from.where + ".items");
    set(from.node, Kind::kArray, out_->arrays.size());
    out_->arrays.push_back({node, least, most});
  }

  std::vector<std::string> required_of(const Waiting& from) {
    std::vector<std::string> names;
    const Json* required = from.schema->find("required");
    const std::string where = from.where + ".required";
    if (required == nullptr) {
      return names;
    }
    if (!required->is_array()) {
      fail(where, str_cat("found ", required->type_name(), ", expected a list of names"));
    }
    for (const Json& name : required->get_array()) {
      if (!name.is_string()) {
        fail(where, str_cat("found ", name.type_name(), ", expected names"));
      }
      names.push_back(name.get_string());
    }
    return names;
  }

  void read_object(const Waiting& from) {
    const Json* properties = from.schema->find("properties");
    const Json* additional = from.schema->find("additionalProperties");
    if (properties != nullptr && !properties->is_object()) {
      fail(from.where + ".properties",
           str_cat("found ", properties->type_name(), ", expected an object"));
    }
    JsonGrammar::Object object;
    // What the schema does not name comes only where it says so, or where it names nothing.
    const bool is_closed =
        additional != nullptr && additional->is_bool() && !additional->get_bool();
    if (additional != nullptr && !is_closed) {
      object.extra = node_of(*additional, from.where + ".additionalProperties");
    } else if (additional == nullptr && properties == nullptr) {
      object.extra = any_node();
    }
    std::vector<std::string> keys;
    std::vector<std::string> names;
    if (properties != nullptr) {
      for (const auto& [name, schema] : properties->get_object()) {
        names.push_back(name);
        object.values.push_back(
            node_of(schema, str_cat(from.where, ".properties.", name.substr(0, kShownName))));
      }
    }
    std::vector<bool> is_required(names.size(), false);
    std::unordered_map<std::string, size_t> place;
    for (size_t index = 0; index < names.size(); ++index) {
      place.emplace(names[index], index);
    }
    for (const std::string& name : required_of(from)) {
      const auto found = place.find(name);
      if (found != place.end()) {
        is_required[found->second] = true;
        continue;
      }
      if (is_closed) {
        fail(from.where + ".required",
             str_cat("names \"", name.substr(0, kShownName), "\", which properties do not have"));
      }
      place.emplace(name, names.size());
      names.push_back(name);
      object.values.push_back(object.extra != JsonGrammar::kUnbounded ? object.extra : any_node());
      is_required.push_back(true);
    }
    for (const std::string& name : names) {
      keys.push_back(spell(Json(name), ascii_only_));
      literal_bytes_ += keys.back().size();
    }
    if (literal_bytes_ > limits_.max_literal_bytes) {
      literals({}, from.where);  // throws
    }
    object.keys = LiteralTrie(keys);
    if (ascii_only_) {
      for (size_t index = 0; index < names.size(); ++index) {
        keys[index] = spell(Json(names[index]), false);
      }
    }
    object.names = LiteralTrie(keys);
    object.next_required.assign(names.size() + 1, static_cast<uint32_t>(names.size()));
    for (size_t index = names.size(); index-- > 0;) {
      object.next_required[index] =
          is_required[index] ? static_cast<uint32_t>(index) : object.next_required[index + 1];
    }
    set(from.node, Kind::kObject, out_->objects.size());
    out_->objects.push_back(std::move(object));
  }

  void read_values(const Waiting& from) {
    std::vector<std::string> types;
    if (from.schema->contains("type")) {
      types = types_of(from);
    }
    const Json* one = from.schema->find("const");
    const Json* list = from.schema->find("enum");
    if (one != nullptr && list != nullptr) {
      fail(from.where + ".enum", "found beside const");
    }
    if (list != nullptr && (!list->is_array() || list->size() == 0)) {
      fail(from.where + ".enum", "expected a list with at least one value");
    }
    std::vector<std::string> texts;
    const auto take = [&](const Json& value) {
      const bool fits = types.empty() || std::ranges::any_of(types, [&](const std::string& type) {
                          return has_type(value, type);
                        });
      if (fits) {
        texts.push_back(spell(value, ascii_only_));
      }
    };
    if (one != nullptr) {
      take(*one);
    } else {
      std::ranges::for_each(list->get_array(), take);
    }
    if (texts.empty()) {
      fail(from.where + ".type", "none of the values has this type");
    }
    set(from.node, Kind::kLiterals, literals(std::move(texts), from.where));
  }

  void read_any_of(const Waiting& from) {
    const Json& list = from.schema->at("anyOf");
    const std::string where = from.where + ".anyOf";
    if (!list.is_array() || list.size() == 0) {
      fail(where, "expected a list with at least one schema");
    }
    if (list.size() > limits_.max_choices) {
      throw Error(ErrorCode::kTooLarge,
                  str_cat("[",
                          where,
                          "] has ",
                          list.size(),
                          " schemas, at most ",
                          limits_.max_choices,
                          " are read"));
    }
    std::vector<uint32_t> alternatives;
    for (size_t index = 0; index < list.size(); ++index) {
      alternatives.push_back(node_of(list[index], str_cat(where, "[", index, "]")));
    }
    set_choice(from.node, std::move(alternatives));
  }

  // A pointer (RFC 6901) into the document, behind '#'.
  void read_ref(const Waiting& from) {
    const Json& ref = from.schema->at("$ref");
    const std::string where = from.where + ".$ref";
    if (!ref.is_string() || ref.get_string().empty() || ref.get_string()[0] != '#') {
      throw Error(ErrorCode::kUnsupported,
                  str_cat("[",
                          where,
                          "] found ",
                          ref.dump().substr(0, 100),
                          ", expected a place in this document, as in #/$defs/name"));
    }
    const Json* target = &document_;
    const std::string& pointer = ref.get_string();
    size_t at = 1;
    while (target != nullptr && at < pointer.size()) {
      if (pointer[at] != '/') {
        target = nullptr;
        break;
      }
      const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
      std::string name;
      for (size_t index = at + 1; index < end; ++index) {
        const bool escaped = pointer[index] == '~' && index + 1 < end;
        name += !escaped ? pointer[index] : pointer[++index] == '1' ? '/' : '~';
      }
      target = child(*target, name);
      at = end;
    }
    if (target == nullptr) {
      fail(where, str_cat("\"", pointer.substr(0, 100), "\" names nothing in this schema"));
    }
    set_choice(from.node, {node_of(*target, str_cat(where_, pointer.substr(1, kShownName)))});
  }

  static const Json* child(const Json& parent, const std::string& name) {
    if (!parent.is_array()) {
      return parent.find(name);
    }
    size_t index = 0;
    if (name.empty() || name.size() > 6 ||
        !std::ranges::all_of(name, [](char digit) { return digit >= '0' && digit <= '9'; })) {
      return nullptr;
    }
    index = std::stoul(name);
    return index < parent.size() ? &parent[index] : nullptr;
  }

  const Json& document_;
  const std::string where_;
  const bool ascii_only_;
  const JsonSchemaLimits limits_;
  std::shared_ptr<JsonGrammar> out_;
  std::deque<Waiting> waiting_;
  std::unordered_map<const Json*, uint32_t> known_;
  std::map<std::string, uint32_t, std::less<>> free_;
  std::optional<uint32_t> any_;
  size_t literal_bytes_ = 0;
};

}  // namespace

std::shared_ptr<const JsonGrammar> compile_json_schema(const Json& schema,
                                                       const std::string& where,
                                                       bool ascii_only,
                                                       const JsonSchemaLimits& limits) {
  return Compiler(schema, where, ascii_only, limits).compile();
}

}  // namespace mstar
