#pragma once

namespace mstar {

// For tests, and to find out whether a fast kernel is to blame: while on, ops that have a slow
// twin of the same signature (ref/) enqueue it instead. Off at the start; thread-safe.
bool reference_kernels();
void set_reference_kernels(bool on);

}  // namespace mstar
