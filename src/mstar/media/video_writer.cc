// Writing with FFmpeg: MP4 with H.264 and AAC, and sound files.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/ffmpeg.h"
#include "mstar/media/sound_codec.h"
#include "mstar/media/video.h"

namespace mstar {

namespace av {

void be_quiet() {
  static std::once_flag once;
  std::call_once(once, [] { av_log_set_level(AV_LOG_QUIET); });
}

std::string error_text(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(error, text, sizeof(text));
  return text;
}

namespace {

// Of an encoder or a muxer fed with valid data: memory ran out, or a bug.
int checked(int result, const char* what) {
  if (result < 0) {
    throw Error(ErrorCode::kInternal, str_cat("[media] ", what, ": ", error_text(result)));
  }
  return result;
}

template <typename T>
T* checked(T* pointer, const char* what) {
  if (pointer == nullptr) {
    throw Error(ErrorCode::kInternal, str_cat("[media] ", what, ": out of memory"));
  }
  return pointer;
}

const AVCodec& find_encoder(const char* name) {
  const AVCodec* codec = avcodec_find_encoder_by_name(name);
  if (codec == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                str_cat("[media] this machine's FFmpeg has no encoder ", name));
  }
  return *codec;
}

// The nearest number with a small denominator: 24 as 24/1, 29.97 as 2997/100.
AVRational rational_rate(double fps) {
  constexpr int kMaxTerm = 100000;
  return av_d2q(fps, kMaxTerm);
}

// A file being written, in memory; without `seekable` its bytes leave as they come.
class MemoryFile {
 public:
  explicit MemoryFile(bool seekable) {
    auto* buffer = static_cast<unsigned char*>(checked(av_malloc(kIoBufferBytes), "buffer"));
    io_.reset(avio_alloc_context(
        buffer, kIoBufferBytes, 1, this, nullptr, &MemoryFile::write, &MemoryFile::seek));
    if (io_ == nullptr) {
      av_free(buffer);
    }
    checked(io_.get(), "buffer");
    if (!seekable) {
      io_->seekable = 0;
    }
  }

  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  AVIOContext* io() { return io_.get(); }

  // Another handle, for reading what was written.
  AVIOContext* open_reader() {
    auto* buffer = static_cast<unsigned char*>(av_malloc(kIoBufferBytes));
    read_position_ = 0;
    AVIOContext* reader =
        buffer == nullptr
            ? nullptr
            : avio_alloc_context(
                  buffer, kIoBufferBytes, 0, this, &MemoryFile::read, nullptr, &seek_reader);
    if (reader == nullptr) {
      av_free(buffer);
    }
    return reader;
  }

  std::string take() {
    avio_flush(io_.get());
    position_ = 0;
    return std::exchange(bytes_, {});
  }

 private:
  static int write(void* self, uint8_t* data, int size) {
    auto& file = *static_cast<MemoryFile*>(self);
    const size_t end = file.position_ + static_cast<size_t>(size);
    if (end > file.bytes_.size()) {
      file.bytes_.resize(end);
    }
    std::memcpy(file.bytes_.data() + file.position_, data, static_cast<size_t>(size));
    file.position_ = end;
    return size;
  }

  static int read(void* self, uint8_t* data, int size) {
    auto& file = *static_cast<MemoryFile*>(self);
    const size_t left = file.bytes_.size() - std::min(file.bytes_.size(), file.read_position_);
    const size_t taken = std::min(left, static_cast<size_t>(size));
    if (taken == 0) {
      return AVERROR_EOF;
    }
    std::memcpy(data, file.bytes_.data() + file.read_position_, taken);
    file.read_position_ += taken;
    return static_cast<int>(taken);
  }

  static int64_t seek(void* self, int64_t offset, int whence) {
    auto& file = *static_cast<MemoryFile*>(self);
    return move(file.position_, file.bytes_.size(), offset, whence);
  }

  static int64_t seek_reader(void* self, int64_t offset, int whence) {
    auto& file = *static_cast<MemoryFile*>(self);
    return move(file.read_position_, file.bytes_.size(), offset, whence);
  }

  static int64_t move(size_t& position, size_t size, int64_t offset, int whence) {
    if (whence == AVSEEK_SIZE) {
      return static_cast<int64_t>(size);
    }
    const auto base = static_cast<int64_t>(whence == SEEK_CUR   ? position
                                           : whence == SEEK_END ? size
                                                                : 0);
    if (base + offset < 0) {
      return AVERROR(EINVAL);
    }
    position = static_cast<size_t>(base + offset);
    return base + offset;
  }

  IoPtr io_;
  std::string bytes_;
  size_t position_ = 0;
  size_t read_position_ = 0;
};

// A container being filled with packets.
class Muxer {
 public:
  Muxer(const char* format, bool seekable) : file_(seekable) {
    checked(avformat_alloc_output_context2(&context_, nullptr, format, nullptr), format);
    context_->pb = file_.io();
    context_->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT;
    context_->max_interleave_delta = 0;  // packets go by their time alone
    // The index moves to the front by reading the file again.
    context_->opaque = &file_;
    context_->io_open =
        [](AVFormatContext* self, AVIOContext** io, const char*, int, AVDictionary**) {
          *io = static_cast<MemoryFile*>(self->opaque)->open_reader();
          return *io == nullptr ? AVERROR(ENOMEM) : 0;
        };
    context_->io_close2 = [](AVFormatContext*, AVIOContext* io) {
      Free()(io);
      return 0;
    };
  }

  ~Muxer() { avformat_free_context(context_); }

  Muxer(const Muxer&) = delete;
  Muxer& operator=(const Muxer&) = delete;

  bool needs_global_header() const { return (context_->oformat->flags & AVFMT_GLOBALHEADER) != 0; }

  int add_stream(const AVCodecContext& encoder) {
    AVStream* stream = checked(avformat_new_stream(context_, nullptr), "stream");
    checked(avcodec_parameters_from_context(stream->codecpar, &encoder), "stream");
    stream->time_base = encoder.time_base;
    stream->avg_frame_rate = encoder.framerate;
    return stream->index;
  }

  void write_header(Options& options) {
    checked(avformat_write_header(context_, options.get()), "header");
  }

  // Takes what the packet holds; its times are the encoder's.
  void write(AVPacket& packet, AVRational time_base, int stream) {
    packet.stream_index = stream;
    av_packet_rescale_ts(&packet, time_base, context_->streams[stream]->time_base);
    checked(av_interleaved_write_frame(context_, &packet), "packet");
  }

  // Ends a fragment.
  void flush() {
    checked(av_interleaved_write_frame(context_, nullptr), "packet");
    checked(av_write_frame(context_, nullptr), "fragment");
  }

  void finish() { checked(av_write_trailer(context_), "end of the file"); }

  std::string take() { return file_.take(); }

 private:
  MemoryFile file_;
  AVFormatContext* context_ = nullptr;
};

// One encoder whose packets go into a muxer.
class TrackWriter {
 public:
  TrackWriter(Muxer& muxer, const AVCodec& codec)
      : muxer_(muxer),
        context_(checked(avcodec_alloc_context3(&codec), "encoder")),
        packet_(checked(av_packet_alloc(), "packet")) {
    context_->thread_count = 1;
    context_->flags |= AV_CODEC_FLAG_BITEXACT;
    if (muxer.needs_global_header()) {
      context_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    }
  }

  AVCodecContext& context() { return *context_; }

  void open(Options& options) {
    checked(avcodec_open2(context_.get(), nullptr, options.get()), context_->codec->name);
    stream_ = muxer_.add_stream(*context_);
  }

  // Null at the end.
  void encode(const AVFrame* frame) {
    checked(avcodec_send_frame(context_.get(), frame), context_->codec->name);
    while (true) {
      const int result = avcodec_receive_packet(context_.get(), packet_.get());
      if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) {
        return;
      }
      checked(result, context_->codec->name);
      if (packet_->duration == 0 && context_->codec_type == AVMEDIA_TYPE_VIDEO) {
        packet_->duration = 1;
      }
      muxer_.write(*packet_, context_->time_base, stream_);
    }
  }

 private:
  Muxer& muxer_;
  CodecContextPtr context_;
  PacketPtr packet_;
  int stream_ = 0;
};

// The rate an encoder is fed at: the sound's, or the next one above that it knows.
int encoder_rate(const AVCodec& codec, int64_t rate) {
  if (codec.supported_samplerates == nullptr) {
    return static_cast<int>(rate);
  }
  int above = 0;
  int highest = 0;
  for (const int* known = codec.supported_samplerates; *known != 0; ++known) {
    highest = std::max(highest, *known);
    if (*known >= rate && (above == 0 || *known < above)) {
      above = *known;
    }
  }
  return above != 0 ? above : highest;
}

bool takes_format(const AVCodec& codec, AVSampleFormat format) {
  for (const AVSampleFormat* known = codec.sample_fmts; *known != AV_SAMPLE_FMT_NONE; ++known) {
    if (*known == format) {
      return true;
    }
  }
  return false;
}

// A sound track: samples of any number in, frames of the encoder's size out.
class SoundWriter {
 public:
  SoundWriter(Muxer& muxer, const AVCodec& codec, int64_t sample_rate, int64_t num_channels)
      : track_(muxer, codec), given_rate_(sample_rate), channels_(num_channels) {
    AVCodecContext& context = track_.context();
    planar_ = takes_format(codec, AV_SAMPLE_FMT_FLTP);
    context.sample_fmt = planar_ ? AV_SAMPLE_FMT_FLTP : AV_SAMPLE_FMT_FLT;
    context.sample_rate = encoder_rate(codec, sample_rate);
    av_channel_layout_default(&context.ch_layout, static_cast<int>(num_channels));
    context.time_base = {1, context.sample_rate};
    constexpr int64_t kBitsPerChannel = 96000;
    context.bit_rate = kBitsPerChannel * num_channels;
    Options options;
    track_.open(options);
    frame_size_ = context.frame_size > 0 ? context.frame_size : 1024;
    pending_.resize(static_cast<size_t>(num_channels));
  }

  // At the given rate.
  void add(const AudioClip& sound) {
    MSTAR_CHECK(sound.num_channels() == channels_ && sound.sample_rate == given_rate_,
                "channels=",
                sound.num_channels());
    // Across pieces a resampler would hear silence between them, so it waits for all.
    if (given_rate_ != track_.context().sample_rate) {
      whole_.push_back(sound);
      return;
    }
    append(sound);
    encode(false);
  }

  void finish() {
    if (!whole_.empty()) {
      append(resample(joined(), track_.context().sample_rate));
    }
    encode(true);
    track_.encode(nullptr);
  }

 private:
  AudioClip joined() const {
    int64_t total = 0;
    for (const AudioClip& part : whole_) {
      total += part.num_frames();
    }
    AudioClip all{Tensor::empty({channels_, total}, DType::kF32), given_rate_};
    auto* to = all.samples.data<float>();
    for (int64_t channel = 0; channel < channels_; ++channel) {
      for (const AudioClip& part : whole_) {
        for (int64_t i = 0; i < part.num_frames(); ++i) {
          *to++ = part.samples
                      .data<float>()[channel * part.samples.stride(0) + i * part.samples.stride(1)];
        }
      }
    }
    return all;
  }

  void append(const AudioClip& sound) {
    for (int64_t channel = 0; channel < channels_; ++channel) {
      std::vector<float>& to = pending_[static_cast<size_t>(channel)];
      const float* from = sound.samples.data<float>() + channel * sound.samples.stride(0);
      for (int64_t i = 0; i < sound.num_frames(); ++i) {
        const float value = from[i * sound.samples.stride(1)];
        to.push_back(std::isfinite(value) ? std::clamp(value, -1.0F, 1.0F) : 0.0F);
      }
    }
  }

  // Whole frames; at the end the rest too.
  void encode(bool all) {
    size_t begin = 0;
    const size_t end = pending_.front().size();
    const auto size = static_cast<size_t>(frame_size_);
    while (end - begin >= size || (all && begin < end)) {
      const size_t count = std::min(size, end - begin);
      encode_frame(begin, count);
      begin += count;
    }
    for (std::vector<float>& channel : pending_) {
      channel.erase(channel.begin(), channel.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }

  void encode_frame(size_t begin, size_t count) {
    const FramePtr frame(checked(av_frame_alloc(), "frame"));
    const AVCodecContext& context = track_.context();
    frame->format = context.sample_fmt;
    frame->sample_rate = context.sample_rate;
    frame->nb_samples = static_cast<int>(count);
    checked(av_channel_layout_copy(&frame->ch_layout, &context.ch_layout), "frame");
    checked(av_frame_get_buffer(frame.get(), 0), "frame");
    for (size_t channel = 0; channel < pending_.size(); ++channel) {
      const float* from = pending_[channel].data() + begin;
      if (planar_) {
        std::copy_n(from, count, reinterpret_cast<float*>(frame->extended_data[channel]));
        continue;
      }
      auto* to = reinterpret_cast<float*>(frame->data[0]) + channel;
      for (size_t i = 0; i < count; ++i) {
        to[i * pending_.size()] = from[i];
      }
    }
    frame->pts = next_sample_;
    next_sample_ += static_cast<int64_t>(count);
    track_.encode(frame.get());
  }

  TrackWriter track_;
  int64_t given_rate_;
  int64_t channels_;
  bool planar_ = true;
  int frame_size_ = 0;
  int64_t next_sample_ = 0;
  std::vector<std::vector<float>> pending_;  // by channel, not encoded yet
  std::vector<AudioClip> whole_;             // waiting for the resampler
};

}  // namespace

std::string encode_sound(const AudioClip& clip, AudioFormat format) {
  be_quiet();

  struct Kind {
    AudioFormat format;
    const char* encoder;
    const char* container;
    int64_t max_channels;
  };

  constexpr Kind kKinds[] = {{AudioFormat::kMp3, "libmp3lame", "mp3", 2},
                             {AudioFormat::kOpus, "libopus", "ogg", 8},
                             {AudioFormat::kAac, "aac", "adts", 8}};
  const Kind* kind = std::ranges::find(kKinds, format, &Kind::format);
  MSTAR_CHECK(kind != std::end(kKinds), "no format of FFmpeg's");
  if (clip.num_channels() > kind->max_channels) {
    throw Error(ErrorCode::kInvalidArgument,
                str_cat("[media] ",
                        kind->container,
                        " holds ",
                        kind->max_channels,
                        " channels at most, found ",
                        clip.num_channels()));
  }
  Muxer muxer(kind->container, true);
  SoundWriter writer(muxer, find_encoder(kind->encoder), clip.sample_rate, clip.num_channels());
  Options options;
  muxer.write_header(options);
  writer.add(clip);
  writer.finish();
  muxer.finish();
  return muxer.take();
}

}  // namespace av

class VideoWriter::Impl {
 public:
  explicit Impl(const VideoOptions& options)
      : options_(options),
        width_((options.width + 1) / 2 * 2),
        height_((options.height + 1) / 2 * 2),
        muxer_("mp4", !options.fragmented),
        pictures_(muxer_, av::find_encoder("libx264")) {
    open_pictures();
    if (options.sample_rate > 0 && options.num_channels > 0) {
      sound_ = std::make_unique<av::SoundWriter>(
          muxer_, av::find_encoder("aac"), options.sample_rate, options.num_channels);
    }
    av::Options muxer_options;
    muxer_options.set(
        "movflags", options.fragmented ? "frag_custom+empty_moov+default_base_moof" : "faststart");
    muxer_.write_header(muxer_options);
  }

  void add_frames(const Tensor& frames) {
    MSTAR_CHECK(frames.num_dims() == 4 && frames.dim(1) == options_.height &&
                    frames.dim(2) == options_.width && frames.dim(3) == 3 &&
                    frames.dtype() == DType::kU8 && frames.is_contiguous(),
                frames.to_string());
    for (int64_t index = 0; index < frames.dim(0); ++index) {
      add_frame(frames.data<uint8_t>() + index * options_.height * options_.width * 3);
    }
  }

  void add_sound(const AudioClip& sound) {
    MSTAR_CHECK(sound_ != nullptr, "the film has no sound track");
    sound_->add(sound);
  }

  std::string take() {
    if (!std::exchange(has_news_, false) || !options_.fragmented) {
      return "";
    }
    muxer_.flush();
    return muxer_.take();
  }

  std::string finish() {
    MSTAR_CHECK(next_frame_ > 0, "a film without frames");
    pictures_.encode(nullptr);
    if (sound_ != nullptr) {
      sound_->finish();
    }
    muxer_.finish();
    return muxer_.take();
  }

 private:
  void open_pictures() {
    AVCodecContext& context = pictures_.context();
    const AVRational rate = av::rational_rate(options_.fps);
    MSTAR_CHECK(rate.num > 0 && rate.den > 0, "fps=", options_.fps);
    context.width = static_cast<int>(width_);
    context.height = static_cast<int>(height_);
    context.time_base = av_inv_q(rate);
    context.framerate = rate;
    context.pix_fmt = AV_PIX_FMT_YUV420P;
    context.max_b_frames = 0;
    // What players assume of a film that does not say: the older standard below 720 rows.
    const bool high = options_.height >= 720;
    context.colorspace = high ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M;
    context.color_primaries = high ? AVCOL_PRI_BT709 : AVCOL_PRI_SMPTE170M;
    context.color_trc = high ? AVCOL_TRC_BT709 : AVCOL_TRC_SMPTE170M;
    context.color_range = AVCOL_RANGE_MPEG;
    av::Options options;
    options.set("preset", "veryfast");
    options.set("crf", str_cat(options_.crf));
    // A frame goes in, its packet comes out: nothing waits for what follows.
    options.set("x264-params", "rc-lookahead=0:sync-lookahead=0:mbtree=0:force-cfr=1:threads=1");
    options.set("forced-idr", "1");
    pictures_.open(options);

    scaler_.reset(sws_getContext(context.width,
                                 context.height,
                                 AV_PIX_FMT_RGB24,
                                 context.width,
                                 context.height,
                                 AV_PIX_FMT_YUV420P,
                                 SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP | SWS_BITEXACT,
                                 nullptr,
                                 nullptr,
                                 nullptr));
    av::checked(scaler_.get(), "colours");
    const int* matrix = sws_getCoefficients(high ? SWS_CS_ITU709 : SWS_CS_ITU601);
    constexpr int kUnit = 1 << 16;
    sws_setColorspaceDetails(
        scaler_.get(), sws_getCoefficients(SWS_CS_DEFAULT), 1, matrix, 0, 0, kUnit, kUnit);
  }

  // The frame with even sides.
  const uint8_t* padded(const uint8_t* rgb) {
    if (width_ == options_.width && height_ == options_.height) {
      return rgb;
    }
    padded_.resize(static_cast<size_t>(width_ * height_ * 3));
    for (int64_t y = 0; y < height_; ++y) {
      const uint8_t* from = rgb + std::min(y, options_.height - 1) * options_.width * 3;
      uint8_t* to = padded_.data() + y * width_ * 3;
      std::copy_n(from, options_.width * 3, to);
      if (width_ > options_.width) {
        std::copy_n(from + (options_.width - 1) * 3, 3, to + options_.width * 3);
      }
    }
    return padded_.data();
  }

  void add_frame(const uint8_t* rgb) {
    const av::FramePtr frame(av::checked(av_frame_alloc(), "frame"));
    const AVCodecContext& context = pictures_.context();
    frame->format = context.pix_fmt;
    frame->width = context.width;
    frame->height = context.height;
    frame->colorspace = context.colorspace;
    frame->color_primaries = context.color_primaries;
    frame->color_trc = context.color_trc;
    frame->color_range = context.color_range;
    av::checked(av_frame_get_buffer(frame.get(), 0), "frame");
    const uint8_t* planes[] = {padded(rgb)};
    const int strides[] = {static_cast<int>(width_ * 3)};
    sws_scale(
        scaler_.get(), planes, strides, 0, static_cast<int>(height_), frame->data, frame->linesize);
    frame->pts = next_frame_++;
    if (!has_news_) {
      frame->pict_type = AV_PICTURE_TYPE_I;
    }
    has_news_ = true;
    pictures_.encode(frame.get());
  }

  const VideoOptions options_;
  const int64_t width_;
  const int64_t height_;
  av::Muxer muxer_;
  av::TrackWriter pictures_;
  std::unique_ptr<av::SoundWriter> sound_;
  av::SwsPtr scaler_;
  std::vector<uint8_t> padded_;
  int64_t next_frame_ = 0;
  bool has_news_ = false;  // frames since the last take()
};

VideoWriter::VideoWriter(const VideoOptions& options) {
  MSTAR_CHECK(options.width > 0 && options.height > 0 && options.fps > 0.0,
              "width=",
              options.width,
              " height=",
              options.height,
              " fps=",
              options.fps);
  av::be_quiet();
  impl_ = std::make_unique<Impl>(options);
}

VideoWriter::~VideoWriter() = default;
VideoWriter::VideoWriter(VideoWriter&&) noexcept = default;
VideoWriter& VideoWriter::operator=(VideoWriter&&) noexcept = default;

void VideoWriter::add_frames(const Tensor& frames) {
  impl_->add_frames(frames);
}

void VideoWriter::add_sound(const AudioClip& sound) {
  impl_->add_sound(sound);
}

std::string VideoWriter::take() {
  return impl_->take();
}

std::string VideoWriter::finish() {
  return impl_->finish();
}

std::string encode_mp4(const Tensor& frames, double fps, const AudioClip* sound) {
  VideoOptions options{.width = frames.dim(2), .height = frames.dim(1), .fps = fps};
  if (sound != nullptr) {
    options.sample_rate = sound->sample_rate;
    options.num_channels = sound->num_channels();
  }
  VideoWriter writer(options);
  writer.add_frames(frames);
  if (sound != nullptr) {
    writer.add_sound(*sound);
  }
  return writer.finish();
}

}  // namespace mstar
