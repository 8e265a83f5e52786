#include "mstar/engine/named_tensors.h"

#include <algorithm>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

const TensorList* NamedTensors::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
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
  for (const Entry& entry : entries_) {
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

void NamedTensors::set(std::string_view name, TensorList tensors) {
  if (TensorList* list = find(name)) {
    *list = std::move(tensors);
  } else {
    entries_.emplace_back(std::string(name), std::move(tensors));
  }
}

void NamedTensors::set(std::string_view name, Tensor tensor) {
  TensorList list;
  list.push_back(std::move(tensor));
  set(name, std::move(list));
}

bool NamedTensors::erase(std::string_view name) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.first == name; }) > 0;
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
