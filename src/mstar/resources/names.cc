#include "mstar/resources/names.h"

#include <algorithm>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

int32_t NameTable::intern(std::string_view name) {
  const int32_t known = find(name);
  if (known >= 0) {
    return known;
  }
  names_.emplace_back(name);
  return size() - 1;
}

int32_t NameTable::find(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  return found == names_.end() ? -1 : static_cast<int32_t>(found - names_.begin());
}

int32_t NameTable::get(std::string_view name) const {
  const int32_t id = find(name);
  if (id < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[",
                        kind_,
                        "] unknown ",
                        kind_,
                        " '",
                        name,
                        "'; known are: ",
                        names_.empty() ? "none" : str_join(names_, ", ")));
  }
  return id;
}

const std::string& NameTable::name(int32_t id) const {
  MSTAR_CHECK(id >= 0 && id < size(), kind_, " id=", id, " of ", size());
  return names_[static_cast<size_t>(id)];
}

}  // namespace mstar
