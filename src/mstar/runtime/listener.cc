#include "mstar/runtime/listener.h"

namespace mstar {

const char* to_string(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::kQueued: return "queued";
    case RequestPhase::kStarted: return "started";
    case RequestPhase::kDone: return "done";
    case RequestPhase::kFailed: return "failed";
    case RequestPhase::kCancelled: return "cancelled";
  }
  return "unknown";
}

}  // namespace mstar
