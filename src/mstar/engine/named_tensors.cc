#include "mstar/engine/named_tensors.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

const TensorList* NamedTensors::find(std::string_view name) const {
  for (const Entry& entry : *this) {
    if (entry.first == name) {
      return &entry.second;
    }
  }
  return nullptr;
}

TensorList* NamedTensors::find(std::string_view name) {
  return const_cast<TensorList*>(std::as_const(*this).find(name));
}

const TensorList& NamedTensors::at(std::string_view name) const {
  if (const TensorList* list = find(name)) {
    return *list;
  }
  std::vector<std::string> names;
  for (const Entry& entry : *this) {
    names.push_back(entry.first);
  }
  throw Error(ErrorCode::kInternal,
              str_cat("[tensors] no \"", name, "\" among {", str_join(names, ", "), "}"));
}

const Tensor& NamedTensors::tensor(std::string_view name) const {
  const TensorList& list = at(name);
  if (list.size() != 1) {
    throw Error(ErrorCode::kInternal,
                str_cat("[tensors] \"", name, "\" has ", list.size(), " tensors, expected 1"));
  }
  return list.front();
}

Tensor NamedTensors::tensor_or_none(std::string_view name) const {
  const TensorList* list = find(name);
  return list == nullptr || list->empty() ? Tensor() : tensor(name);
}

// The name's list, to be filled.
TensorList& NamedTensors::list_for(std::string_view name) {
  if (TensorList* list = find(name)) {
    list->clear();
    return *list;
  }
  if (size_ == entries_.size()) {
    entries_.emplace_back();
  }
  Entry& entry = entries_[size_++];
  entry.first = name;
  return entry.second;
}

void NamedTensors::set(std::string_view name, TensorList tensors) {
  list_for(name) = std::move(tensors);
}

void NamedTensors::set(std::string_view name, Tensor tensor) {
  list_for(name).push_back(std::move(tensor));
}

void NamedTensors::set(std::string_view name, std::span<const Tensor> tensors) {
  list_for(name).assign(tensors.begin(), tensors.end());
}

bool NamedTensors::erase(std::string_view name) {
  Entry* found =
      std::find_if(begin(), end(), [&](const Entry& entry) { return entry.first == name; });
  if (found == end()) {
    return false;
  }
  found->second.clear();
  std::rotate(found, found + 1, end());
  --size_;
  return true;
}

void NamedTensors::clear() {
  for (Entry& entry : *this) {
    entry.second.clear();
  }
  size_ = 0;
}

bool NamedTensors::rename(std::string_view from, std::string_view to) {
  TensorList* list = find(from);
  if (list == nullptr) {
    return false;
  }
  TensorList moved = std::move(*list);
  erase(from);
  set(to, std::move(moved));
  return true;
}

}  // namespace mstar
