// Ends of videos that a later request may go on with. Bounded by number and bytes; the one that
// was used longest ago goes first.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "mstar/models/cosmos3/vae_blocks.h"

namespace mstar::cosmos3 {

// What is kept of a video: enough to generate and decode the frames behind it as if it had never
// ended. Read-only once stored.
struct WindowSession {
  Tensor latents;          // [channels, frames, h, w] f32: the last clean latent frames
  VaeCache decoder;        // what the decoder remembers behind them
  int64_t num_units = 0;   // latent frames of the whole video so far
  int64_t num_frames = 0;  // pixel frames

  int64_t size_bytes() const { return latents.size_bytes() + decoder.size_bytes(); }
};

using WindowSessionPtr = std::shared_ptr<const WindowSession>;

// Thread-safe.
class WindowSessions {
 public:
  WindowSessions(int64_t max_sessions, int64_t max_bytes)
      : max_sessions_(max_sessions), max_bytes_(max_bytes) {}

  // Replaces what `id` was. A session larger than the whole store is not kept.
  void store(const std::string& id, WindowSessionPtr session);

  // Null when it was never stored or has been dropped since.
  WindowSessionPtr find(const std::string& id);

  int64_t num_sessions() const;
  int64_t num_bytes() const;

 private:
  struct Entry {
    std::string id;
    WindowSessionPtr session;
  };

  void drop(std::list<Entry>::iterator entry);

  const int64_t max_sessions_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::list<Entry> entries_;  // used last first
  int64_t num_bytes_ = 0;
};

}  // namespace mstar::cosmos3
