// Reading with FFmpeg: the frames and the sound of films.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/ffmpeg.h"
#include "mstar/media/image.h"
#include "mstar/media/video.h"

namespace mstar {

namespace {

// Nothing else is tried on a client's bytes: FFmpeg also knows formats that name other files.
constexpr const char* kContainers = "mov,matroska,avi";
constexpr const char* kSoundContainers = "mov,matroska,avi,aac";
constexpr std::array<std::string_view, 11> kVideoCodecs = {"h264",
                                                           "hevc",
                                                           "vp8",
                                                           "vp9",
                                                           "libdav1d",
                                                           "mpeg4",
                                                           "mjpeg",
                                                           "ffv1",
                                                           "prores",
                                                           "theora",
                                                           "rawvideo"};
constexpr std::array<std::string_view, 12> kAudioCodecs = {"aac",
                                                           "mp3float",
                                                           "opus",
                                                           "vorbis",
                                                           "flac",
                                                           "alac",
                                                           "ac3",
                                                           "pcm_s16le",
                                                           "pcm_s16be",
                                                           "pcm_s24le",
                                                           "pcm_f32le",
                                                           "pcm_u8"};

[[noreturn]] void fail(ErrorCode code, std::string_view where, const std::string& what) {
  throw Error(code, str_cat("[", where, "] ", what));
}

// FFmpeg reports memory that ran out like everything else.
int checked(int result, std::string_view where, const char* what) {
  if (result < 0) {
    fail(result == AVERROR(ENOMEM) ? ErrorCode::kInternal : ErrorCode::kUnsupportedMedia,
         where,
         str_cat(what, " (", av::error_text(result), ")"));
  }
  return result;
}

template <typename T>
T* allocated(T* pointer, std::string_view where) {
  if (pointer == nullptr) {
    fail(ErrorCode::kInternal, where, "out of memory");
  }
  return pointer;
}

bool is_too_large(int64_t width, int64_t height, const VideoLimits& limits) {
  return width > limits.max_side || height > limits.max_side || width * height > limits.max_pixels;
}

std::string size_message(int64_t width, int64_t height, const VideoLimits& limits) {
  return str_cat("its frames are ",
                 width,
                 "x",
                 height,
                 " pixels, at most ",
                 limits.max_pixels,
                 " with sides of ",
                 limits.max_side,
                 " are read");
}

void check_size(int64_t width, int64_t height, const VideoLimits& limits, std::string_view where) {
  if (is_too_large(width, height, limits)) {
    fail(ErrorCode::kTooLarge, where, size_message(width, height, limits));
  }
}

// Bytes as FFmpeg reads them.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : bytes_(bytes) {
    auto* buffer = static_cast<unsigned char*>(av_malloc(av::kIoBufferBytes));
    io_.reset(buffer == nullptr ? nullptr
                                : avio_alloc_context(buffer,
                                                     av::kIoBufferBytes,
                                                     0,
                                                     this,
                                                     &MemoryFile::read,
                                                     nullptr,
                                                     &MemoryFile::seek));
    if (io_ == nullptr) {
      av_free(buffer);
    }
  }

  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  AVIOContext* io() { return io_.get(); }

 private:
  static int read(void* self, uint8_t* data, int size) {
    auto& file = *static_cast<MemoryFile*>(self);
    const size_t left = file.bytes_.size() - std::min(file.bytes_.size(), file.position_);
    const size_t taken = std::min(left, static_cast<size_t>(std::max(size, 0)));
    if (taken == 0) {
      return AVERROR_EOF;
    }
    std::memcpy(data, file.bytes_.data() + file.position_, taken);
    file.position_ += taken;
    return static_cast<int>(taken);
  }

  static int64_t seek(void* self, int64_t offset, int whence) {
    auto& file = *static_cast<MemoryFile*>(self);
    const auto size = static_cast<int64_t>(file.bytes_.size());
    if (whence == AVSEEK_SIZE) {
      return size;
    }
    const int64_t base = whence == SEEK_SET   ? 0
                         : whence == SEEK_CUR ? static_cast<int64_t>(file.position_)
                                              : size;
    if (offset > size - base || offset < -base) {
      return AVERROR(EINVAL);
    }
    file.position_ = static_cast<size_t>(base + offset);
    return base + offset;
  }

  std::string_view bytes_;
  size_t position_ = 0;
  av::IoPtr io_;
};

// A container opened for reading, its header parsed.
class Demuxer {
 public:
  // Without limits: for the sound alone.
  Demuxer(std::string_view bytes,
          std::string_view where,
          const char* containers,
          const VideoLimits* limits)
      : where_(where), file_(bytes) {
    av::be_quiet();
    context_ = allocated(avformat_alloc_context(), where);
    context_->pb = file_.io();
    context_->flags |= AVFMT_FLAG_CUSTOM_IO;
    // A file that asks for another one does not get it.
    context_->io_open = [](AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
      return AVERROR(EPERM);
    };
    constexpr int kMaxStreams = 32;
    context_->max_streams = kMaxStreams;
    av::Options options;
    options.set("format_whitelist", containers);
    // Frees the context when it fails.
    if (const int result = avformat_open_input(&context_, nullptr, nullptr, options.get());
        result < 0) {
      fail(result == AVERROR(ENOMEM) ? ErrorCode::kInternal : ErrorCode::kUnsupportedMedia,
           where,
           str_cat("found ",
                   bytes.size(),
                   " bytes that are no readable film (",
                   av::error_text(result),
                   "), expected MP4, MOV, WebM, MKV or AVI"));
    }
    for (unsigned i = 0; i < context_->nb_streams; ++i) {
      const AVCodecParameters& stream = *context_->streams[i]->codecpar;
      if (limits != nullptr && stream.codec_type == AVMEDIA_TYPE_VIDEO &&
          is_too_large(stream.width, stream.height, *limits)) {
        const std::string what = size_message(stream.width, stream.height, *limits);
        avformat_close_input(&context_);
        fail(ErrorCode::kTooLarge, where, what);
      }
    }
    constexpr int64_t kNoPictures = 1;
    find_streams(limits == nullptr ? kNoPictures : limits->max_pixels);
  }

  ~Demuxer() { avformat_close_input(&context_); }

  Demuxer(const Demuxer&) = delete;
  Demuxer& operator=(const Demuxer&) = delete;

  AVFormatContext& context() { return *context_; }

  // Null when there is none.
  AVStream* best(AVMediaType type) {
    const int index = av_find_best_stream(context_, type, -1, -1, nullptr, 0);
    return index < 0 ? nullptr : context_->streams[index];
  }

  // From here on only packets of this stream come.
  void keep_only(const AVStream& stream) {
    for (unsigned i = 0; i < context_->nb_streams; ++i) {
      AVStream* other = context_->streams[i];
      other->discard = other->index == stream.index ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
    }
    stream_ = stream.index;
  }

  // False at the end, and where the rest cannot be read.
  bool next(AVPacket& packet) {
    av_packet_unref(&packet);
    while (av_read_frame(context_, &packet) >= 0) {
      if (packet.stream_index == stream_) {
        return true;
      }
      av_packet_unref(&packet);
    }
    return false;
  }

 private:
  // What headers leave open (rates, pixel formats) from the first packets. It may decode some, so
  // sizes are limited here too.
  void find_streams(int64_t max_pixels) {
    const unsigned count = context_->nb_streams;
    std::vector<AVDictionary*> dictionaries(count, nullptr);
    for (AVDictionary*& dictionary : dictionaries) {
      av_dict_set_int(&dictionary, "max_pixels", max_pixels, 0);
      av_dict_set_int(&dictionary, "threads", 1, 0);
    }
    const int result =
        avformat_find_stream_info(context_, count > 0 ? dictionaries.data() : nullptr);
    for (AVDictionary*& dictionary : dictionaries) {
      av_dict_free(&dictionary);
    }
    if (result < 0) {
      avformat_close_input(&context_);
      checked(result, where_, "nothing is known of its streams");
    }
  }

  const std::string_view where_;
  MemoryFile file_;
  AVFormatContext* context_ = nullptr;
  int stream_ = -1;
};

// A decoder of one stream.
class Decoder {
 public:
  template <size_t N>
  Decoder(const AVStream& stream,
          const std::array<std::string_view, N>& allowed,
          int64_t max_pixels,
          std::string_view where) {
    const AVCodec* codec = avcodec_find_decoder(stream.codecpar->codec_id);
    if (codec == nullptr || std::ranges::find(allowed, codec->name) == allowed.end()) {
      fail(ErrorCode::kUnsupportedMedia,
           where,
           str_cat("its codec ",
                   avcodec_get_name(stream.codecpar->codec_id),
                   " is not read here, expected one of ",
                   str_join(allowed, ", ")));
    }
    context_.reset(allocated(avcodec_alloc_context3(codec), where));
    checked(avcodec_parameters_to_context(context_.get(), stream.codecpar), where, "its header");
    context_->max_pixels = max_pixels;
    context_->thread_count = 1;
    context_->pkt_timebase = stream.time_base;
    checked(avcodec_open2(context_.get(), codec, nullptr), where, "its decoder did not start");
    frame_.reset(allocated(av_frame_alloc(), where));
  }

  const AVCodecContext& context() const { return *context_; }

  // Null at the end of the packets. Packets that are broken give no frame.
  void send(const AVPacket* packet) { avcodec_send_packet(context_.get(), packet); }

  // Null when another packet is needed.
  AVFrame* receive() {
    return avcodec_receive_frame(context_.get(), frame_.get()) < 0 ? nullptr : frame_.get();
  }

 private:
  av::CodecContextPtr context_;
  av::FramePtr frame_;
};

// Every frame of the demuxer's stream, until `use` returns false.
template <typename Use>
void decode(Demuxer& demuxer, Decoder& decoder, std::string_view where, const Use& use) {
  const av::PacketPtr packet(allocated(av_packet_alloc(), where));
  bool more = true;
  while (more) {
    more = demuxer.next(*packet);
    decoder.send(more ? packet.get() : nullptr);
    while (AVFrame* frame = decoder.receive()) {
      if (!use(*frame)) {
        return;
      }
    }
  }
}

// Frames to RGB tensors.
class RgbConverter {
 public:
  explicit RgbConverter(std::string_view where) : where_(where) {}

  // [height, width, 3] at `to`.
  void convert(const AVFrame& frame, uint8_t* to) {
    const auto format = static_cast<AVPixelFormat>(frame.format);
    scaler_.reset(
        sws_getCachedContext(scaler_.release(),
                             frame.width,
                             frame.height,
                             format,
                             frame.width,
                             frame.height,
                             AV_PIX_FMT_RGB24,
                             SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT,
                             nullptr,
                             nullptr,
                             nullptr));
    if (scaler_ == nullptr) {
      fail(ErrorCode::kUnsupportedMedia, where_, "its colours are of a kind that is not read here");
    }
    constexpr int kUnit = 1 << 16;
    const bool full_range = frame.color_range == AVCOL_RANGE_JPEG ||
                            format == AV_PIX_FMT_YUVJ420P || format == AV_PIX_FMT_YUVJ422P ||
                            format == AV_PIX_FMT_YUVJ444P;
    sws_setColorspaceDetails(scaler_.get(),
                             sws_getCoefficients(matrix_of(frame)),
                             full_range ? 1 : 0,
                             sws_getCoefficients(SWS_CS_DEFAULT),
                             1,
                             0,
                             kUnit,
                             kUnit);
    // The scaler may write past the end of a row, so it gets rows of its own.
    const auto row_bytes = static_cast<size_t>(frame.width) * 3;
    const size_t stride = (row_bytes + 64 + 31) / 32 * 32;
    rows_.resize(stride * static_cast<size_t>(frame.height) + 64);
    uint8_t* planes[] = {rows_.data()};
    const int strides[] = {static_cast<int>(stride)};
    sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, planes, strides);
    for (int y = 0; y < frame.height; ++y) {
      std::copy_n(rows_.data() + static_cast<size_t>(y) * stride, row_bytes, to);
      to += row_bytes;
    }
  }

 private:
  // What the film says, else what players assume.
  static int matrix_of(const AVFrame& frame) {
    switch (frame.colorspace) {
      case AVCOL_SPC_BT709: return SWS_CS_ITU709;
      case AVCOL_SPC_BT470BG:
      case AVCOL_SPC_SMPTE170M: return SWS_CS_ITU601;
      case AVCOL_SPC_SMPTE240M: return SWS_CS_SMPTE240M;
      case AVCOL_SPC_BT2020_NCL:
      case AVCOL_SPC_BT2020_CL: return SWS_CS_BT2020;
      default: return frame.height >= 720 ? SWS_CS_ITU709 : SWS_CS_ITU601;
    }
  }

  const std::string_view where_;
  av::SwsPtr scaler_;
  std::vector<uint8_t> rows_;
};

// EXIF's orientation for the turn that a film's header asks for.
int orientation_of(const AVStream& stream) {
  const uint8_t* matrix = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr);
  if (matrix == nullptr) {
    return 1;
  }
  const double angle = av_display_rotation_get(reinterpret_cast<const int32_t*>(matrix));
  if (!std::isfinite(angle)) {
    return 1;
  }
  // Counterclockwise; the quarter that is nearest.
  const auto quarters = (static_cast<int>(std::lround(angle / 90.0)) % 4 + 4) % 4;
  constexpr std::array<int, 4> kOrientations = {1, 8, 3, 6};
  return kOrientations[static_cast<size_t>(quarters)];
}

double rate_of(const AVStream& stream) {
  for (const AVRational rate : {stream.avg_frame_rate, stream.r_frame_rate}) {
    if (rate.num > 0 && rate.den > 0) {
      return av_q2d(rate);
    }
  }
  return 0.0;
}

AVStream& video_stream(Demuxer& demuxer, std::string_view where) {
  AVStream* stream = demuxer.best(AVMEDIA_TYPE_VIDEO);
  if (stream == nullptr || stream->codecpar->width <= 0 || stream->codecpar->height <= 0) {
    fail(ErrorCode::kUnsupportedMedia, where, "the film has no pictures");
  }
  return *stream;
}

void check_length(const VideoInfo& info, const VideoLimits& limits, std::string_view where) {
  if (info.seconds > limits.max_seconds) {
    fail(ErrorCode::kTooLarge,
         where,
         str_cat("the film lasts ",
                 info.seconds,
                 " seconds, expected ",
                 limits.max_seconds,
                 " at most"));
  }
}

[[noreturn]] void too_many_frames(const VideoLimits& limits, std::string_view where) {
  fail(ErrorCode::kTooLarge,
       where,
       str_cat("the film has more than ", limits.max_frames, " frames, so many are gone through"));
}

VideoInfo info_of(Demuxer& demuxer, const VideoLimits& limits, std::string_view where) {
  const AVStream& stream = video_stream(demuxer, where);
  VideoInfo info{.width = stream.codecpar->width, .height = stream.codecpar->height};
  check_size(info.width, info.height, limits, where);
  if (orientation_of(stream) >= 5) {
    std::swap(info.width, info.height);
  }
  info.fps = rate_of(stream);
  if (stream.duration > 0) {
    info.seconds = static_cast<double>(stream.duration) * av_q2d(stream.time_base);
  } else if (demuxer.context().duration > 0) {
    info.seconds = static_cast<double>(demuxer.context().duration) / AV_TIME_BASE;
  }
  check_length(info, limits, where);
  info.num_frames = stream.nb_frames;
  info.has_sound = demuxer.best(AVMEDIA_TYPE_AUDIO) != nullptr;
  info.codec = avcodec_get_name(stream.codecpar->codec_id);
  return info;
}

// Where kept frames go.
class FrameKeeper {
 public:
  FrameKeeper(const VideoSelection& selection,
              const VideoLimits& limits,
              int orientation,
              std::string_view where)
      : selection_(selection),
        limits_(limits),
        orientation_(orientation),
        where_(where),
        converter_(where),
        last_(allocated(av_frame_alloc(), where)) {}

  // False once nothing further is wanted.
  bool add(const AVFrame& frame) {
    if (index_ >= limits_.max_frames) {
      too_many_frames(limits_, where_);
    }
    if (wants(index_)) {
      pixels_ = rgb(frame);
      av_frame_unref(last_.get());
      do {
        keep(index_);
        ++next_choice_;
      } while (chooses() && wants(index_));
    } else {
      // It stands in for chosen ones behind the end, if it is the last.
      av_frame_unref(last_.get());
      checked(av_frame_ref(last_.get(), &frame), where_, "a frame");
    }
    ++index_;
    return !done();
  }

  VideoClip finish() {
    if (index_ == 0) {
      fail(ErrorCode::kUnsupportedMedia, where_, "no frame could be decoded");
    }
    if (chooses() && !done() && last_->width > 0) {
      pixels_ = rgb(*last_);
    }
    for (; chooses() && !done(); ++next_choice_) {
      keep(index_ - 1);
    }
    VideoClip clip;
    const auto count = static_cast<int64_t>(frames_.size());
    MSTAR_CHECK(count > 0, "nothing was asked for");
    const Tensor& first = frames_.front();
    clip.frames = Tensor::empty({count, first.dim(0), first.dim(1), 3}, DType::kU8);
    uint8_t* to = clip.frames.data<uint8_t>();
    for (Tensor& frame : frames_) {
      to = std::copy_n(frame.data<uint8_t>(), frame.num_elements(), to);
      frame = Tensor();
    }
    clip.indexes = std::move(indexes_);
    return clip;
  }

 private:
  bool chooses() const { return !selection_.indexes.empty(); }

  bool wants(int64_t index) const {
    return chooses() ? next_choice_ < selection_.indexes.size() &&
                           selection_.indexes[next_choice_] == index
                     : selection_.first < 0 || index < selection_.first;
  }

  bool done() const {
    return chooses() ? next_choice_ >= selection_.indexes.size()
                     : selection_.first >= 0 && index_ >= selection_.first;
  }

  Tensor rgb(const AVFrame& frame) {
    check_size(frame.width, frame.height, limits_, where_);
    if (width_ == 0) {
      width_ = frame.width;
      height_ = frame.height;
    }
    if (frame.width != width_ || frame.height != height_) {
      fail(ErrorCode::kUnsupportedMedia,
           where_,
           str_cat("frame ", index_, " has another size than those before it"));
    }
    Tensor pixels = Tensor::empty({frame.height, frame.width, 3}, DType::kU8);
    converter_.convert(frame, pixels.data<uint8_t>());
    return orient(pixels, orientation_);
  }

  void keep(int64_t index) {
    kept_bytes_ += pixels_.size_bytes();
    if (kept_bytes_ > limits_.max_kept_bytes) {
      fail(ErrorCode::kTooLarge,
           where_,
           str_cat("its frames are more than ", limits_.max_kept_bytes, " bytes"));
    }
    frames_.push_back(pixels_);
    indexes_.push_back(index);
  }

  const VideoSelection& selection_;
  const VideoLimits& limits_;
  const int orientation_;
  const std::string_view where_;
  RgbConverter converter_;
  int64_t index_ = 0;  // of the frame that comes
  size_t next_choice_ = 0;
  int64_t width_ = 0;
  int64_t height_ = 0;
  Tensor pixels_;      // of the frame that was kept last
  av::FramePtr last_;  // not kept
  int64_t kept_bytes_ = 0;
  std::vector<Tensor> frames_;
  std::vector<int64_t> indexes_;
};

}  // namespace

VideoInfo read_video_info(std::string_view bytes,
                          const VideoLimits& limits,
                          std::string_view where) {
  Demuxer demuxer(bytes, where, kContainers, &limits);
  VideoInfo info = info_of(demuxer, limits, where);
  if (info.num_frames <= 0) {
    info.num_frames = 0;
    demuxer.keep_only(video_stream(demuxer, where));
    const av::PacketPtr packet(allocated(av_packet_alloc(), where));
    while (demuxer.next(*packet)) {
      if (++info.num_frames > limits.max_frames) {
        too_many_frames(limits, where);
      }
    }
    if (info.fps == 0.0 && info.seconds > 0.0) {
      info.fps = static_cast<double>(info.num_frames) / info.seconds;
    }
  }
  if (info.num_frames > limits.max_frames) {
    too_many_frames(limits, where);
  }
  return info;
}

VideoClip read_video(std::string_view bytes,
                     const VideoSelection& selection,
                     const VideoLimits& limits,
                     std::string_view where) {
  MSTAR_CHECK(std::ranges::is_sorted(selection.indexes) && selection.first != 0 &&
                  (selection.indexes.empty() || selection.indexes.front() >= 0),
              "a selection of nothing, or not in order");
  Demuxer demuxer(bytes, where, kContainers, &limits);
  const VideoInfo info = info_of(demuxer, limits, where);
  int64_t needed = info.num_frames;  // 0: not known
  if (!selection.indexes.empty() || selection.first > 0) {
    const int64_t asked =
        selection.indexes.empty() ? selection.first : selection.indexes.back() + 1;
    needed = needed > 0 ? std::min(needed, asked) : 0;
  }
  if (needed > limits.max_frames) {
    too_many_frames(limits, where);
  }
  AVStream& stream = video_stream(demuxer, where);
  demuxer.keep_only(stream);
  Decoder decoder(stream, kVideoCodecs, limits.max_pixels, where);
  FrameKeeper keeper(selection, limits, orientation_of(stream), where);
  decode(demuxer, decoder, where, [&](const AVFrame& frame) { return keeper.add(frame); });
  VideoClip clip = keeper.finish();
  clip.fps = info.fps;
  return clip;
}

AudioClip read_sound_track(std::string_view bytes,
                           const AudioLimits& limits,
                           std::string_view where) {
  Demuxer demuxer(bytes, where, kSoundContainers, nullptr);
  const AVStream* stream = demuxer.best(AVMEDIA_TYPE_AUDIO);
  if (stream == nullptr) {
    fail(ErrorCode::kUnsupportedMedia, where, "there is no sound in it");
  }
  demuxer.keep_only(*stream);
  const int64_t channels = stream->codecpar->ch_layout.nb_channels;
  const int64_t rate = stream->codecpar->sample_rate;
  const double seconds = stream->duration > 0
                             ? static_cast<double>(stream->duration) * av_q2d(stream->time_base)
                             : 0.0;
  check_audio_limits(
      {.sample_rate = rate,
       .num_channels = channels,
       .num_frames = static_cast<int64_t>(std::min(seconds, 1e9) *
                                          static_cast<double>(std::max<int64_t>(rate, 1)))},
      limits,
      where);
  Decoder decoder(*stream, kAudioCodecs, 1, where);
  av::SwrPtr converter;
  std::vector<std::vector<float>> samples(static_cast<size_t>(channels));
  const auto max_samples = static_cast<size_t>(limits.max_seconds * static_cast<double>(rate));
  decode(demuxer, decoder, where, [&](AVFrame& frame) {
    if (frame.ch_layout.nb_channels != channels || frame.sample_rate != rate) {
      fail(ErrorCode::kUnsupportedMedia, where, "its sound changes rate or channels on the way");
    }
    if (converter == nullptr) {
      SwrContext* made = nullptr;
      checked(swr_alloc_set_opts2(&made,
                                  &frame.ch_layout,
                                  AV_SAMPLE_FMT_FLTP,
                                  frame.sample_rate,
                                  &frame.ch_layout,
                                  static_cast<AVSampleFormat>(frame.format),
                                  frame.sample_rate,
                                  0,
                                  nullptr),
              where,
              "its sound");
      converter.reset(made);
      checked(swr_init(made), where, "its sound");
    }
    const auto count = static_cast<size_t>(frame.nb_samples);
    const size_t begin = samples.front().size();
    if (begin + count > max_samples) {
      fail(ErrorCode::kTooLarge,
           where,
           str_cat("the sound lasts more than ", limits.max_seconds, " seconds"));
    }
    std::vector<uint8_t*> to;
    for (std::vector<float>& channel : samples) {
      channel.resize(begin + count);
      to.push_back(reinterpret_cast<uint8_t*>(channel.data() + begin));
    }
    const int written = swr_convert(converter.get(),
                                    to.data(),
                                    frame.nb_samples,
                                    const_cast<const uint8_t**>(frame.extended_data),
                                    frame.nb_samples);
    for (std::vector<float>& channel : samples) {
      channel.resize(begin + static_cast<size_t>(std::max(written, 0)));
    }
    return true;
  });
  if (samples.front().empty()) {
    fail(ErrorCode::kUnsupportedMedia, where, "no sound could be decoded");
  }
  const auto num_frames = static_cast<int64_t>(samples.front().size());
  AudioClip clip{Tensor::empty({channels, num_frames}, DType::kF32), rate};
  auto* to = clip.samples.data<float>();
  for (const std::vector<float>& channel : samples) {
    for (const float value : channel) {
      *to++ = std::isfinite(value) ? value : 0.0F;
    }
  }
  return clip;
}

}  // namespace mstar
