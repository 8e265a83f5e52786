#pragma once

#include <any>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/tensor/tensor.h"

namespace mstar {

// Values of any kind by name: what does not fit a tensor (numbers, schedulers, layouts).
class ValueMap {
 public:
  template <typename T>
  void set(std::string_view key, T value) {
    values_.insert_or_assign(std::string(key), std::any(std::move(value)));
  }

  // Null when absent or of another type.
  template <typename T>
  const T* find(std::string_view key) const {
    const auto it = values_.find(key);
    return it == values_.end() ? nullptr : std::any_cast<T>(&it->second);
  }

  template <typename T>
  T* find(std::string_view key) {
    return const_cast<T*>(std::as_const(*this).template find<T>(key));
  }

  // Must be there with this type. Throws Error(kInternal) naming the key.
  template <typename T>
  T& at(std::string_view key) {
    if (T* value = find<T>(key)) {
      return *value;
    }
    throw Error(ErrorCode::kInternal, str_cat("[values] no \"", key, "\" of the asked type"));
  }

  template <typename T>
  const T& at(std::string_view key) const {
    return const_cast<ValueMap*>(this)->at<T>(key);
  }

  template <typename T>
  T get(std::string_view key, T fallback) const {
    const T* value = find<T>(key);
    return value != nullptr ? *value : fallback;
  }

  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }

  bool erase(std::string_view key) {
    const auto it = values_.find(key);
    return it != values_.end() && (values_.erase(it), true);
  }

  // Adds the values of `other`, replacing those of the same names.
  void merge(const ValueMap& other) {
    for (const auto& [key, value] : other.values_) {
      values_.insert_or_assign(key, value);
    }
  }

  bool empty() const { return values_.empty(); }

 private:
  std::map<std::string, std::any, std::less<>> values_;
};

// What a submodule keeps for one request between its steps. The engine owns it and drops it when
// the request goes. A key lives either in `tensors` or in `kwargs`; adding it again under the
// other kind moves it.
//
// Belongs to the step that holds the request: prepare_inputs, forward, postprocess and check_stop
// of one request never run at the same time.
struct PerRequestState {
  std::map<std::string, Tensor, std::less<>> tensors;
  ValueMap kwargs;
  std::set<std::string> disag_shared_keys;  // would travel with the request between machines

  void add(std::string_view key, Tensor value) {
    kwargs.erase(key);
    tensors.insert_or_assign(std::string(key), std::move(value));
  }

  template <typename T>
  void add(std::string_view key, T value) {
    const auto it = tensors.find(key);
    if (it != tensors.end()) {
      tensors.erase(it);
    }
    kwargs.set(key, std::move(value));
  }

  // Undefined when absent.
  Tensor tensor(std::string_view key) const {
    const auto it = tensors.find(key);
    return it == tensors.end() ? Tensor() : it->second;
  }

  void remove(std::string_view key) {
    const auto it = tensors.find(key);
    if (it != tensors.end()) {
      tensors.erase(it);
    }
    kwargs.erase(key);
  }
};

}  // namespace mstar
