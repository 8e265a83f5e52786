// Films: MP4, MOV, WebM, MKV and AVI to frames and sound, frames and sound to MP4 (H.264 in
// yuv420p, AAC). Functions are pure, any thread, several at once; a VideoWriter belongs to one
// thread at a time. Bytes are hostile until read. Errors: Error(kUnsupportedMedia) for bytes that
// are no such film or broken ones, Error(kTooLarge) over limits; `where` starts messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mstar/media/audio.h"
#include "mstar/tensor/tensor.h"

namespace mstar {

// ---- reading

// What a film says about itself, before a picture is decoded.
struct VideoInfo {
  int64_t width = 0;  // pixels as they are shown: turned as the file says
  int64_t height = 0;
  double fps = 0.0;        // mean rate of the frames; 0: the file does not say
  int64_t num_frames = 0;  // as the header says, else its packets counted; decoding may give fewer
  double seconds = 0.0;    // 0: the file does not say
  bool has_sound = false;
  std::string codec;  // "h264"
};

// What is read at most, checked on headers and packet counts first and then on what is decoded.
struct VideoLimits {
  int64_t max_side = 8192;                    // pixels
  int64_t max_pixels = int64_t{16} << 20;     // of one frame
  int64_t max_frames = 4096;                  // gone through, kept or not
  int64_t max_kept_bytes = int64_t{1} << 30;  // of all kept frames, as RGB
  double max_seconds = 600.0;
};

// Which frames are kept, by their place in the film from 0.
struct VideoSelection {
  int64_t first = -1;            // the first so many; -1: all
  std::vector<int64_t> indexes;  // if any: these instead, ascending, repeats allowed
};

struct VideoClip {
  Tensor frames;  // [kept frames, height, width, 3] u8 sRGB
  double fps = 0.0;
  std::vector<int64_t> indexes;  // of the kept frames
};

// Counts packets where the header does not tell the number of frames; decodes nothing.
VideoInfo read_video_info(std::string_view bytes,
                          const VideoLimits& limits = {},
                          std::string_view where = "video");

// The chosen frames; decoding ends with the last of them. Damaged frames are left out as players
// do; when the film ends before a chosen index, its last frame stands in for what is missing.
VideoClip read_video(std::string_view bytes,
                     const VideoSelection& selection = {},
                     const VideoLimits& limits = {},
                     std::string_view where = "video");

// The sound of a film or of a sound file that only FFmpeg reads (M4A, AAC). Throws
// Error(kUnsupportedMedia) when there is none.
AudioClip read_sound_track(std::string_view bytes,
                           const AudioLimits& limits = {},
                           std::string_view where = "video");

// ---- writing

struct VideoOptions {
  int64_t width = 0;   // of the frames; a film's sides are even: the last column or row of an odd
  int64_t height = 0;  // side is shown twice
  double fps = 24.0;
  // Sound goes beside the pictures when both are given.
  int64_t sample_rate = 0;  // one that AAC does not know (below 7350, odd ones) is resampled
  int64_t num_channels = 0;
  // false: one file with its index in front (faststart), from finish(). true: a fragmented MP4
  // whose bytes are handed out as frames come; each take() begins a fragment.
  bool fragmented = false;
  int crf = 18;  // x264's quality, 0 (lossless) to 51
};

// A film being written. Equal input gives equal bytes: one thread, no dates, no random numbers.
// Frame i is shown at i / fps, for 1 / fps; the sound starts with the first frame. Throws
// Error(kUnsupported) when this machine's FFmpeg has no H.264 encoder.
class VideoWriter {
 public:
  explicit VideoWriter(const VideoOptions& options);
  ~VideoWriter();

  VideoWriter(VideoWriter&&) noexcept;
  VideoWriter& operator=(VideoWriter&&) noexcept;

  // [frames, height, width, 3] u8, contiguous.
  void add_frames(const Tensor& frames);

  // [channels, samples] at VideoOptions' rate; goes on where the last one ended.
  void add_sound(const AudioClip& sound);

  // What is ready and was not handed out; always "" unless fragmented. A key frame follows either
  // way: one file shows what the pieces of a streamed one show, and a player can start there.
  std::string take();

  // The rest; the whole file unless fragmented. At least one frame was added. Nothing may follow.
  std::string finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// frames [frames, height, width, 3] u8 as one MP4, with `sound` beside them if given.
std::string encode_mp4(const Tensor& frames, double fps, const AudioClip* sound = nullptr);

}  // namespace mstar
