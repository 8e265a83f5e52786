#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar::bench {

// The words behind a command, read one after another.
class Arguments {
 public:
  explicit Arguments(const std::vector<std::string>& words) : words_(words) {}

  // Moves to the next word; false at the end.
  bool next() { return ++at_ <= words_.size(); }

  const std::string& word() const { return words_[at_ - 1]; }

  // What stands behind a flag. Throws Error(kInvalidArgument) naming the flag when nothing does.
  const std::string& value() {
    const std::string& flag = word();
    if (!next()) {
      throw Error(ErrorCode::kInvalidArgument, str_cat("[mstar_bench] ", flag, " needs a value"));
    }
    return word();
  }

  // The same as a number of 1 or more.
  int64_t number() { return std::max(1L, std::atol(value().c_str())); }

  int count() { return static_cast<int>(number()); }

  // Throws Error(kInvalidArgument) for a word nobody knows.
  [[noreturn]] void refuse(const char* usage) const {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[mstar_bench] unknown argument ", word(), "\n", usage));
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
};

}  // namespace mstar::bench
