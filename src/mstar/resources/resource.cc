#include "mstar/resources/resource.h"

#include <algorithm>

namespace mstar {

PublishedStream& PublishedInfo::stream(LabelId label) {
  for (PublishedStream& stream : streams) {
    if (stream.label == label) {
      return stream;
    }
  }
  streams.push_back({.label = label});
  return streams.back();
}

void PublishedInfo::merge(const PublishedInfo& other) {
  for (const PublishedStream& theirs : other.streams) {
    PublishedStream& ours = stream(theirs.label);
    ours.stored_len = std::max(ours.stored_len, theirs.stored_len);
    ours.position = std::max(ours.position, theirs.position);
  }
}

}  // namespace mstar
