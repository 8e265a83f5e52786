#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "mstar/kernels/cpu/isa.h"
#include "mstar/kernels/ref/reference.h"

// For tests that run one check on every path of the kernels.
namespace mstar {

// What this processor offers, weakest first.
inline std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (isa <= best_isa()) {
      isas.push_back(isa);
    }
  }
  return isas;
}

// Switches the active set and back.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa) : before_(active_isa()) { set_active_isa(isa); }

  ~ScopedIsa() { set_active_isa(before_); }

  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  Isa before_;
};

// Runs `body` with every instruction set this processor has.
template <typename Body>
void for_each_isa(Body&& body) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(to_string(isa));
    const ScopedIsa scoped(isa);
    body();
  }
}

// The slow twins while it lives.
class ScopedReference {
 public:
  ScopedReference() { set_reference_kernels(true); }

  ~ScopedReference() { set_reference_kernels(false); }

  ScopedReference(const ScopedReference&) = delete;
  ScopedReference& operator=(const ScopedReference&) = delete;
};

}  // namespace mstar
