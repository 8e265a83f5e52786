#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace mstar {

struct ImageStoreOptions {
  size_t max_bytes = size_t{256} << 20;  // 0: no pictures are kept
  size_t max_count = 1024;
  std::chrono::seconds max_age{3600};
};

// Pictures that answers name by URL instead of carrying them: in memory, bounded in bytes, number
// and age, the oldest go first. Who knows a name may have the picture; names are random and come
// from the caller. Thread-safe.
class ImageStore {
 public:
  using Clock = std::chrono::steady_clock;

  struct Image {
    std::string bytes;
    std::string content_type;
  };

  struct Stats {
    size_t num_images = 0;
    size_t size_bytes = 0;
    int64_t num_dropped = 0;  // before anybody could say they are done with it: age, number, bytes
  };

  explicit ImageStore(const ImageStoreOptions& options) : options_(options) {}

  bool is_on() const { return options_.max_bytes > 0 && options_.max_count > 0; }

  // Keeps a picture. Throws Error(kTooLarge) when it alone is over the bytes there are.
  void add(std::string name, Image image, Clock::time_point now = Clock::now());

  // The picture, or null when it never was or is gone. It stays valid when it is dropped meanwhile.
  std::shared_ptr<const Image> find(std::string_view name, Clock::time_point now = Clock::now());

  Stats stats(Clock::time_point now = Clock::now());

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<const Image> image;
    Clock::time_point end;
  };

  void drop_oldest();                     // mutex_ is held
  void drop_aged(Clock::time_point now);  // mutex_ is held

  const ImageStoreOptions options_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // oldest first; guarded by mutex_, as the rest
  size_t size_bytes_ = 0;
  int64_t num_dropped_ = 0;
};

}  // namespace mstar
