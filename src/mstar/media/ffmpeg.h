// FFmpeg's types with owners. For the two sources that read and write with FFmpeg; nothing else
// includes this.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/channel_layout.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libswresample/swresample.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <string>

namespace mstar::av {

struct Free {
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }

  void operator()(AVFrame* frame) const { av_frame_free(&frame); }

  void operator()(AVPacket* packet) const { av_packet_free(&packet); }

  void operator()(SwsContext* context) const { sws_freeContext(context); }

  void operator()(SwrContext* context) const { swr_free(&context); }

  void operator()(AVIOContext* io) const {
    av_freep(&io->buffer);
    avio_context_free(&io);
  }
};

using CodecContextPtr = std::unique_ptr<AVCodecContext, Free>;
using FramePtr = std::unique_ptr<AVFrame, Free>;
using PacketPtr = std::unique_ptr<AVPacket, Free>;
using SwsPtr = std::unique_ptr<SwsContext, Free>;
using SwrPtr = std::unique_ptr<SwrContext, Free>;
using IoPtr = std::unique_ptr<AVIOContext, Free>;

// Options that own themselves.
class Options {
 public:
  Options() = default;

  ~Options() { av_dict_free(&dictionary_); }

  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  void set(const char* name, const std::string& value) {
    av_dict_set(&dictionary_, name, value.c_str(), 0);
  }

  AVDictionary** get() { return &dictionary_; }

 private:
  AVDictionary* dictionary_ = nullptr;
};

inline constexpr int kIoBufferBytes = 1 << 16;

// Silences FFmpeg, which writes of every odd byte to the standard error; once a process.
void be_quiet();

// FFmpeg's words for one of its error numbers.
std::string error_text(int error);

}  // namespace mstar::av
