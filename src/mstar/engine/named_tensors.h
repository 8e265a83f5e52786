#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/tensor/tensor.h"

namespace mstar {

// What one edge carries: any number of tensors. Empty is legal and means "arrived, no data".
using TensorList = std::vector<Tensor>;

// A node's inputs or outputs by name, in the order they were set. A handful of entries, so
// lookups walk the list. Thread-compatible.
class NamedTensors {
 public:
  using Entry = std::pair<std::string, TensorList>;

  NamedTensors() = default;

  NamedTensors(std::initializer_list<Entry> entries) : entries_(entries) {}

  // Null when absent.
  const TensorList* find(std::string_view name) const;
  TensorList* find(std::string_view name);

  bool contains(std::string_view name) const { return find(name) != nullptr; }

  // The list, which must be there. Throws Error(kInternal) naming it and what is there: a model's
  // walk and its submodule disagree.
  const TensorList& at(std::string_view name) const;

  // The only tensor of a list of exactly one. Throws like at().
  const Tensor& tensor(std::string_view name) const;

  // The only tensor, or an undefined one when the name is absent or its list empty.
  Tensor tensor_or_none(std::string_view name) const;

  void set(std::string_view name, TensorList tensors);
  void set(std::string_view name, Tensor tensor);

  // False when there was none.
  bool erase(std::string_view name);

  // Gives `from`'s list the name `to` (replacing what was there). False when there was none.
  bool rename(std::string_view from, std::string_view to);

  void clear() { entries_.clear(); }

  bool empty() const { return entries_.empty(); }

  size_t size() const { return entries_.size(); }

  auto begin() const { return entries_.begin(); }

  auto end() const { return entries_.end(); }

  auto begin() { return entries_.begin(); }

  auto end() { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace mstar
