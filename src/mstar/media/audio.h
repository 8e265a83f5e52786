#pragma once

// Sound files: bytes to samples and back, and from one rate to another. Everything here is pure:
// any thread, several at once. Bytes are hostile until read.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mstar/tensor/tensor.h"

namespace mstar {

// What a file says about itself, before anything is decoded.
struct AudioInfo {
  int64_t sample_rate = 0;   // samples a second and channel
  int64_t num_channels = 0;  // as stored
  int64_t num_frames = -1;   // samples of one channel; -1: the file does not say

  // Length, or a negative number when the file does not say.
  double seconds() const;
};

// What is read at most; more is Error(kTooLarge), by the header where it tells.
struct AudioLimits {
  double max_seconds = 600.0;
  int64_t max_channels = 8;
  int64_t min_sample_rate = 1000;
  int64_t max_sample_rate = 384000;
};

struct AudioClip {
  Tensor samples;  // [channels, frames] f32, nominally -1 to 1
  int64_t sample_rate = 0;

  int64_t num_channels() const { return samples.dim(0); }

  int64_t num_frames() const { return samples.dim(1); }

  double seconds() const;
};

// Throws Error(kTooLarge) or Error(kUnsupportedMedia) for what is outside.
void check_audio_limits(const AudioInfo& info, const AudioLimits& limits, std::string_view where);

// The header of a WAV, FLAC, Ogg (Vorbis, Opus) or MP3 file. Throws Error(kUnsupportedMedia) when
// the bytes are none of these. `where` starts messages.
AudioInfo read_audio_info(std::string_view bytes, std::string_view where = "audio");

// The whole sound; M4A and AAC files and the sound track of films too. A WAV file whose header does
// not know its length (a recording that was piped) reaches to the end of the bytes; what is cut off
// in the middle ends there. Throws Error(kUnsupportedMedia) for bytes that are no sound or have
// none in them, Error(kTooLarge) over the limits. Samples that are not finite become 0.
AudioClip read_audio(std::string_view bytes,
                     const AudioLimits& limits,
                     std::string_view where = "audio");

enum class AudioFormat : uint8_t {
  kPcm16,  // bare samples, interleaved, little-endian
  kWav,    // 16 bits
  kFlac,   // 16 bits
  kMp3,    // 1 or 2 channels
  kOpus,   // in Ogg
  kAac,    // in ADTS
};

// "pcm", "wav", "flac", "mp3", "opus" or "aac"; nothing for other words.
std::optional<AudioFormat> parse_audio_format(std::string_view word);

// "audio/wav" and so on.
const char* media_type(AudioFormat format);

// The sound of `samples` as a file is written from: interleaved 16-bit little-endian to [channels,
// frames] f32. An odd rest of bytes is left out.
AudioClip from_pcm16(std::string_view samples, int64_t sample_rate, int64_t num_channels);

// A file; values outside -1 to 1 are clipped. `clip` has 1 to 8 channels. Equal input gives equal
// bytes. MP3, Opus and AAC know some rates only: others become the next one above. Throws
// Error(kInvalidArgument) for more channels than the format holds.
std::string write_audio(const AudioClip& clip, AudioFormat format);

// The mean of the channels: [1, frames].
AudioClip to_mono(const AudioClip& clip);

// The same sound at another rate: a windowed sinc below half of the lower rate. Sample i of the
// result stands for the time i / sample_rate, as it does in `clip`; ceil(frames * rate / clip's
// rate) samples.
AudioClip resample(const AudioClip& clip, int64_t sample_rate);

}  // namespace mstar
