// Sound files that FFmpeg writes: libsndfile knows fewer, and numbers Ogg streams at random. Only
// for this folder.
#pragma once

#include <string>

#include "mstar/media/audio.h"

namespace mstar::av {

// kMp3, kOpus or kAac. Throws Error(kUnsupported) when this machine's FFmpeg lacks the encoder.
std::string encode_sound(const AudioClip& clip, AudioFormat format);

}  // namespace mstar::av
