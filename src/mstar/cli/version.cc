#include "mstar/cli/commands.h"

namespace mstar {

std::string version_text() {
  return MSTAR_VERSION;
}

}  // namespace mstar
