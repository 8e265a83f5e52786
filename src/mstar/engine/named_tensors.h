#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mstar/tensor/tensor.h"

namespace mstar {

// What one edge carries: any number of tensors. Empty is legal and means "arrived, no data".
using TensorList = std::vector<Tensor>;

// A node's inputs or outputs by name, in the order they were set. A handful of entries, so
// lookups walk the list. clear() keeps the memory of names and lists: one that is filled alike at
// every step allocates nothing. Thread-compatible.
class NamedTensors {
 public:
  using Entry = std::pair<std::string, TensorList>;

  NamedTensors() = default;

  NamedTensors(std::initializer_list<Entry> entries) : entries_(entries), size_(entries.size()) {}

  ~NamedTensors() = default;

  NamedTensors(const NamedTensors& other)
      : entries_(other.begin(), other.end()), size_(other.size_) {}

  NamedTensors(NamedTensors&& other) noexcept
      : entries_(std::move(other.entries_)), size_(std::exchange(other.size_, 0)) {}

  NamedTensors& operator=(NamedTensors other) noexcept {
    std::swap(entries_, other.entries_);
    std::swap(size_, other.size_);
    return *this;
  }

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
  void set(std::string_view name, std::span<const Tensor> tensors);

  // False when there was none.
  bool erase(std::string_view name);

  // Gives `from`'s list the name `to` (replacing what was there). False when there was none.
  bool rename(std::string_view from, std::string_view to);

  void clear();

  bool empty() const { return size_ == 0; }

  size_t size() const { return size_; }

  const Entry* begin() const { return entries_.data(); }

  const Entry* end() const { return entries_.data() + size_; }

  Entry* begin() { return entries_.data(); }

  Entry* end() { return entries_.data() + size_; }

 private:
  TensorList& list_for(std::string_view name);

  std::vector<Entry> entries_;  // behind the first size_: spare ones, with empty lists
  size_t size_ = 0;
};

}  // namespace mstar
