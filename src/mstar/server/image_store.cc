#include "mstar/server/image_store.h"

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"

namespace mstar {

void ImageStore::drop_oldest() {
  size_bytes_ -= entries_.front().image->bytes.size();
  entries_.pop_front();
  ++num_dropped_;
}

void ImageStore::drop_aged(Clock::time_point now) {
  while (!entries_.empty() && entries_.front().end <= now) {
    drop_oldest();
  }
}

void ImageStore::add(std::string name, Image image, Clock::time_point now) {
  const size_t size = image.bytes.size();
  if (size > options_.max_bytes) {
    throw Error(ErrorCode::kTooLarge,
                str_cat("[images] a picture has ",
                        size,
                        " bytes, the server keeps ",
                        options_.max_bytes,
                        " (--image-store-mb); ask for b64_json"));
  }
  auto kept = std::make_shared<const Image>(std::move(image));
  const std::lock_guard lock(mutex_);
  drop_aged(now);
  while (!entries_.empty() &&
         (entries_.size() >= options_.max_count || size_bytes_ + size > options_.max_bytes)) {
    drop_oldest();
  }
  entries_.push_back({std::move(name), std::move(kept), now + options_.max_age});
  size_bytes_ += size;
}

std::shared_ptr<const ImageStore::Image> ImageStore::find(std::string_view name,
                                                          Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  drop_aged(now);
  for (const Entry& entry : entries_) {
    if (entry.name == name) {
      return entry.image;
    }
  }
  return nullptr;
}

ImageStore::Stats ImageStore::stats(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  drop_aged(now);
  return {entries_.size(), size_bytes_, num_dropped_};
}

}  // namespace mstar
