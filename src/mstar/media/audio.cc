#include "mstar/media/audio.h"

#include <sndfile.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/sound_codec.h"
#include "mstar/media/video.h"

namespace mstar {

namespace {

constexpr int64_t kReadFrames = 8192;  // decoded at a time

// Bytes in memory as libsndfile reads and writes them.
struct MemoryFile {
  std::string_view in;  // when reading
  std::string out;      // when writing
  bool writing = false;
  sf_count_t position = 0;

  sf_count_t size() const { return static_cast<sf_count_t>(writing ? out.size() : in.size()); }
};

sf_count_t file_size(void* user) {
  return static_cast<MemoryFile*>(user)->size();
}

sf_count_t file_seek(sf_count_t offset, int whence, void* user) {
  auto& file = *static_cast<MemoryFile*>(user);
  const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file.position : file.size();
  // Headers ask for places far outside; the sum must not overflow.
  if (offset > file.size() + base || offset < -base) {
    return -1;
  }
  file.position = base + offset;
  return file.position;
}

sf_count_t file_read(void* data, sf_count_t count, void* user) {
  auto& file = *static_cast<MemoryFile*>(user);
  const sf_count_t left = std::max<sf_count_t>(0, file.size() - file.position);
  const sf_count_t taken = std::clamp<sf_count_t>(count, 0, left);
  if (taken > 0) {
    std::memcpy(data, file.in.data() + file.position, static_cast<size_t>(taken));
    file.position += taken;
  }
  return taken;
}

sf_count_t file_write(const void* data, sf_count_t count, void* user) {
  auto& file = *static_cast<MemoryFile*>(user);
  const auto end = static_cast<size_t>(file.position + count);
  if (end > file.out.size()) {
    file.out.resize(end);
  }
  std::memcpy(file.out.data() + file.position, data, static_cast<size_t>(count));
  file.position += count;
  return count;
}

sf_count_t file_tell(void* user) {
  return static_cast<MemoryFile*>(user)->position;
}

SF_VIRTUAL_IO virtual_io() {
  return {.get_filelen = file_size,
          .seek = file_seek,
          .read = file_read,
          .write = file_write,
          .tell = file_tell};
}

struct CloseSndFile {
  void operator()(SNDFILE* file) const { sf_close(file); }
};

using SndFile = std::unique_ptr<SNDFILE, CloseSndFile>;

[[noreturn]] void fail(ErrorCode code, std::string_view where, const std::string& what) {
  throw Error(code, str_cat("[", where, "] ", what));
}

// Where the size of a WAV file's sound stands, when it is none: zero, all ones, or more than
// there is. Nothing otherwise.
struct WavRepair {
  size_t size_offset = 0;
  uint32_t size_bytes = 0;  // what it should be
};

uint32_t little_endian(std::string_view bytes, size_t offset) {
  uint32_t value = 0;
  for (size_t index = 4; index-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[offset + index]);
  }
  return value;
}

bool find_repair(std::string_view bytes, WavRepair& repair) {
  if (bytes.size() < 12 || bytes.substr(0, 4) != "RIFF" || bytes.substr(8, 4) != "WAVE") {
    return false;
  }
  size_t offset = 12;
  while (bytes.size() - offset >= 8) {
    const uint32_t size = little_endian(bytes, offset + 4);
    const size_t left = bytes.size() - offset - 8;
    if (bytes.substr(offset, 4) == "data") {
      repair.size_offset = offset + 4;
      repair.size_bytes = static_cast<uint32_t>(std::min<size_t>(left, UINT32_MAX));
      return size > left || (size == 0 && left > 0);
    }
    if (size > left) {
      return false;
    }
    offset += 8 + size + (size & 1U);
    if (offset > bytes.size()) {
      return false;
    }
  }
  return false;
}

// A file opened for reading; `memory` and the bytes must stay.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view where) {
    WavRepair repair;
    if (find_repair(bytes, repair)) {
      repaired_ = std::string(bytes);
      const auto riff_size = static_cast<uint32_t>(std::min<size_t>(bytes.size() - 8, UINT32_MAX));
      for (size_t index = 0; index < 4; ++index) {
        repaired_[repair.size_offset + index] = static_cast<char>(repair.size_bytes >> 8 * index);
        repaired_[4 + index] = static_cast<char>(riff_size >> 8 * index);
      }
      bytes = repaired_;
    }
    memory_.in = bytes;
    SF_VIRTUAL_IO io = virtual_io();
    file_.reset(sf_open_virtual(&io, SFM_READ, &format_, &memory_));
    if (file_ == nullptr) {
      fail(ErrorCode::kUnsupportedMedia,
           where,
           str_cat("found ",
                   bytes.size(),
                   " bytes that are no sound file (",
                   sf_strerror(nullptr),
                   "), expected WAV, FLAC, Ogg or MP3"));
    }
    if (format_.channels <= 0 || format_.samplerate <= 0) {
      fail(ErrorCode::kUnsupportedMedia, where, "the file has no channel or no sample rate");
    }
  }

  AudioInfo info() const {
    const bool known = format_.frames > 0 && format_.frames < SF_COUNT_MAX;
    return {.sample_rate = format_.samplerate,
            .num_channels = format_.channels,
            .num_frames = known ? format_.frames : -1};
  }

  // Interleaved samples; the number of frames read, 0 at the end.
  int64_t read(float* to, int64_t num_frames) {
    return std::max<sf_count_t>(0, sf_readf_float(file_.get(), to, num_frames));
  }

 private:
  std::string repaired_;
  MemoryFile memory_;
  SF_INFO format_{};
  SndFile file_;
};

}  // namespace

void check_audio_limits(const AudioInfo& info, const AudioLimits& limits, std::string_view where) {
  if (info.num_channels > limits.max_channels) {
    fail(ErrorCode::kTooLarge,
         where,
         str_cat(
             "found ", info.num_channels, " channels, expected ", limits.max_channels, " at most"));
  }
  if (info.sample_rate < limits.min_sample_rate || info.sample_rate > limits.max_sample_rate) {
    fail(ErrorCode::kUnsupportedMedia,
         where,
         str_cat("found ",
                 info.sample_rate,
                 " samples a second, expected ",
                 limits.min_sample_rate,
                 " to ",
                 limits.max_sample_rate));
  }
  if (info.seconds() > limits.max_seconds) {
    fail(ErrorCode::kTooLarge,
         where,
         str_cat("the sound lasts ",
                 info.seconds(),
                 " seconds, expected ",
                 limits.max_seconds,
                 " at most"));
  }
}

double AudioInfo::seconds() const {
  return num_frames < 0 ? -1.0 : static_cast<double>(num_frames) / static_cast<double>(sample_rate);
}

double AudioClip::seconds() const {
  return static_cast<double>(num_frames()) / static_cast<double>(sample_rate);
}

AudioInfo read_audio_info(std::string_view bytes, std::string_view where) {
  return Reader(bytes, where).info();
}

namespace {

// Containers that only FFmpeg reads: MP4 and its kin, Matroska, AVI, and AAC's own frames.
bool is_for_ffmpeg(std::string_view bytes) {
  const auto has_at = [&](size_t offset, std::string_view magic) {
    return bytes.size() >= offset + magic.size() && bytes.substr(offset, magic.size()) == magic;
  };
  const bool adts = bytes.size() > 2 && bytes[0] == '\xFF' &&
                    (static_cast<unsigned char>(bytes[1]) & 0xF6U) == 0xF0U;
  return has_at(4, "ftyp") || has_at(0, "\x1A\x45\xDF\xA3") || has_at(8, "AVI ") || adts;
}

}  // namespace

AudioClip read_audio(std::string_view bytes, const AudioLimits& limits, std::string_view where) {
  if (is_for_ffmpeg(bytes)) {
    return read_sound_track(bytes, limits, where);
  }
  Reader reader(bytes, where);
  const AudioInfo info = reader.info();
  check_audio_limits(info, limits, where);
  // The header may lie: what comes is counted.
  const auto max_frames =
      static_cast<int64_t>(limits.max_seconds * static_cast<double>(info.sample_rate));
  const auto channels = static_cast<size_t>(info.num_channels);
  std::vector<float> interleaved;
  int64_t num_frames = 0;
  while (true) {
    const auto begin = static_cast<size_t>(num_frames) * channels;
    interleaved.resize(begin + static_cast<size_t>(kReadFrames) * channels);
    const int64_t read = reader.read(interleaved.data() + begin, kReadFrames);
    if (read == 0) {
      break;
    }
    num_frames += read;
    if (num_frames > max_frames) {
      fail(ErrorCode::kTooLarge,
           where,
           str_cat("the sound lasts more than ", limits.max_seconds, " seconds"));
    }
  }
  if (num_frames == 0) {
    fail(ErrorCode::kUnsupportedMedia, where, "the file holds no sample");
  }
  AudioClip clip{Tensor::empty({info.num_channels, num_frames}, DType::kF32), info.sample_rate};
  auto* to = clip.samples.data<float>();
  for (size_t channel = 0; channel < channels; ++channel) {
    const float* from = interleaved.data() + channel;
    for (int64_t frame = 0; frame < num_frames; ++frame, from += channels) {
      *to++ = std::isfinite(*from) ? *from : 0.0F;
    }
  }
  return clip;
}

namespace {

struct FormatName {
  AudioFormat format;
  std::string_view word;
  const char* media_type;
};

constexpr std::array<FormatName, 6> kFormatNames = {{
    {AudioFormat::kPcm16, "pcm", "audio/pcm"},
    {AudioFormat::kWav, "wav", "audio/wav"},
    {AudioFormat::kFlac, "flac", "audio/flac"},
    {AudioFormat::kMp3, "mp3", "audio/mpeg"},
    {AudioFormat::kOpus, "opus", "audio/ogg"},
    {AudioFormat::kAac, "aac", "audio/aac"},
}};

std::vector<int16_t> interleaved_pcm16(const AudioClip& clip) {
  const int64_t channels = clip.num_channels();
  const int64_t num_frames = clip.num_frames();
  std::vector<int16_t> interleaved(static_cast<size_t>(channels * num_frames));
  for (int64_t channel = 0; channel < channels; ++channel) {
    const float* from = clip.samples.data<float>() + channel * clip.samples.stride(0);
    for (int64_t frame = 0; frame < num_frames; ++frame) {
      const float value = from[frame * clip.samples.stride(1)];
      const float scaled = std::clamp(std::isnan(value) ? 0.0F : value, -1.0F, 1.0F) * 32767.0F;
      interleaved[static_cast<size_t>(frame * channels + channel)] =
          static_cast<int16_t>(std::lrintf(scaled));
    }
  }
  return interleaved;
}

}  // namespace

std::optional<AudioFormat> parse_audio_format(std::string_view word) {
  const auto* found = std::ranges::find(kFormatNames, word, &FormatName::word);
  return found == kFormatNames.end() ? std::nullopt : std::optional(found->format);
}

const char* media_type(AudioFormat format) {
  return std::ranges::find(kFormatNames, format, &FormatName::format)->media_type;
}

AudioClip from_pcm16(std::string_view samples, int64_t sample_rate, int64_t num_channels) {
  MSTAR_CHECK(sample_rate > 0 && num_channels > 0, "channels=", num_channels);
  const int64_t num_frames = static_cast<int64_t>(samples.size()) / (2 * num_channels);
  AudioClip clip{Tensor::empty({num_channels, num_frames}, DType::kF32), sample_rate};
  auto* to = clip.samples.data<float>();
  for (int64_t channel = 0; channel < num_channels; ++channel) {
    for (int64_t frame = 0; frame < num_frames; ++frame) {
      const auto at = static_cast<size_t>(2 * (frame * num_channels + channel));
      const auto value = static_cast<int16_t>(
          static_cast<unsigned char>(samples[at]) |
          static_cast<unsigned>(static_cast<unsigned char>(samples[at + 1])) << 8);
      *to++ = static_cast<float>(value) / 32767.0F;
    }
  }
  return clip;
}

std::string write_audio(const AudioClip& clip, AudioFormat format) {
  const int64_t channels = clip.num_channels();
  const int64_t num_frames = clip.num_frames();
  MSTAR_CHECK(channels >= 1 && channels <= 8 && clip.sample_rate > 0, "channels=", channels);
  if (format == AudioFormat::kMp3 || format == AudioFormat::kOpus || format == AudioFormat::kAac) {
    return av::encode_sound(clip, format);
  }
  const std::vector<int16_t> interleaved = interleaved_pcm16(clip);
  if (format == AudioFormat::kPcm16) {
    std::string bytes;
    bytes.reserve(2 * interleaved.size());
    for (const int16_t value : interleaved) {
      bytes += static_cast<char>(value & 0xFF);
      bytes += static_cast<char>((value >> 8) & 0xFF);
    }
    return bytes;
  }
  MemoryFile memory;
  memory.writing = true;
  SF_INFO info{};
  info.samplerate = static_cast<int>(clip.sample_rate);
  info.channels = static_cast<int>(channels);
  info.format = (format == AudioFormat::kFlac ? SF_FORMAT_FLAC : SF_FORMAT_WAV) | SF_FORMAT_PCM_16;
  SF_VIRTUAL_IO io = virtual_io();
  SndFile file(sf_open_virtual(&io, SFM_WRITE, &info, &memory));
  if (file == nullptr ||
      sf_writef_short(file.get(), interleaved.data(), num_frames) != num_frames) {
    fail(ErrorCode::kInternal, "write_audio", sf_strerror(file.get()));
  }
  file.reset();  // completes the header
  return std::move(memory.out);
}

AudioClip to_mono(const AudioClip& clip) {
  const int64_t channels = clip.num_channels();
  const int64_t num_frames = clip.num_frames();
  AudioClip mono{Tensor::zeros({1, num_frames}, DType::kF32), clip.sample_rate};
  auto* to = mono.samples.data<float>();
  for (int64_t channel = 0; channel < channels; ++channel) {
    const float* from = clip.samples.data<float>() + channel * clip.samples.stride(0);
    for (int64_t frame = 0; frame < num_frames; ++frame) {
      to[frame] += from[frame * clip.samples.stride(1)];
    }
  }
  for (int64_t frame = 0; frame < num_frames; ++frame) {
    to[frame] /= static_cast<float>(channels);
  }
  return mono;
}

}  // namespace mstar
