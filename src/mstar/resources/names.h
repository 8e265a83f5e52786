#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mstar {

using RequestHandle = int32_t;  // dense, given by the engine; reused after the request's removal
using LabelId = int32_t;        // one cache stream of a request, or a plan label
using ResourceId = int32_t;     // one engine-owned resource
using WalkId = int32_t;

// Strings to small dense ids and back. Built while loading, read afterwards: names are validated
// once and hot paths compare integers. Thread-compatible (no writer after load).
class NameTable {
 public:
  // `kind` names what is listed in error messages: "label", "resource".
  explicit NameTable(std::string kind) : kind_(std::move(kind)) {}

  // Id of `name`, new when it is.
  int32_t intern(std::string_view name);

  // Id of `name`, or -1.
  int32_t find(std::string_view name) const;

  // Id of `name`; throws Error(kInvalidArgument) listing the known names when there is none.
  int32_t get(std::string_view name) const;

  const std::string& name(int32_t id) const;

  int32_t size() const { return static_cast<int32_t>(names_.size()); }

  const std::vector<std::string>& names() const { return names_; }

 private:
  std::string kind_;
  std::vector<std::string> names_;
};

// Labels of the cache streams of one engine. "main" always is label 0.
class LabelTable : public NameTable {
 public:
  LabelTable() : NameTable("label") { intern("main"); }
};

inline constexpr LabelId kMainLabel = 0;

}  // namespace mstar
