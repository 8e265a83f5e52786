#include "mstar/media/video.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numbers>

#include "mstar/base/error.h"
#include "mstar/base/json.h"
#include "mstar/base/text_file.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

std::string file(const std::string& name) {
  return read_text_file(std::string(MSTAR_SOURCE_DIR "/tests/media/") + name);
}

// Frames that a codec keeps well: a bright square on its way over a slope.
Tensor moving_square(int64_t count, int64_t height, int64_t width) {
  Tensor frames = Tensor::empty({count, height, width, 3}, DType::kU8);
  uint8_t* to = frames.data<uint8_t>();
  for (int64_t frame = 0; frame < count; ++frame) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const bool inside = x >= 2 * frame && x < 2 * frame + 8 && y >= 4 && y < 12;
        *to++ = static_cast<uint8_t>(inside ? 230 : 40 + x);
        *to++ = static_cast<uint8_t>(inside ? 220 : 40 + x);
        *to++ = static_cast<uint8_t>(inside ? 210 : 60 + y);
      }
    }
  }
  return frames;
}

AudioClip tone(double seconds, int64_t rate, int64_t channels) {
  const auto count = static_cast<int64_t>(std::lround(seconds * static_cast<double>(rate)));
  AudioClip clip{Tensor::empty({channels, count}, DType::kF32), rate};
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t i = 0; i < count; ++i) {
      clip.samples.data<float>()[channel * count + i] =
          static_cast<float>(0.5 * std::sin(2.0 * std::numbers::pi * 100.0 *
                                            static_cast<double>(i) / static_cast<double>(rate)));
    }
  }
  return clip;
}

double mean_distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double sum = 0.0;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    sum += std::abs(a.data<uint8_t>()[i] - b.data<uint8_t>()[i]);
  }
  return sum / static_cast<double>(a.num_elements());
}

// What ffprobe finds: its "streams" list, pictures first.
Json ffprobe(const std::string& bytes) {
  const fs::path path =
      fs::temp_directory_path() / ("mstar_video_" + std::to_string(::getpid()) + ".mp4");
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string command =
      "ffprobe -v error -count_frames -show_streams -show_format -of json " + path.string();
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), read);
  }
  EXPECT_EQ(::pclose(pipe), 0) << "ffprobe found an error";
  fs::remove(path);
  return Json::parse(text, "ffprobe");
}

double seconds_of(const Json& stream) {
  return std::stod(stream.at("duration").get_string());
}

TEST(VideoWriter, FfprobeCountsWhatWasWritten) {
  for (const double fps : {24.0, 8.0, 29.97, 12.5}) {
    const std::string mp4 = encode_mp4(moving_square(9, 32, 48), fps);
    const Json streams = ffprobe(mp4).at("streams");
    ASSERT_EQ(streams.size(), 1U);
    EXPECT_EQ(streams[0].at("codec_name").get_string(), "h264");
    EXPECT_EQ(streams[0].at("pix_fmt").get_string(), "yuv420p");
    EXPECT_EQ(streams[0].at("nb_frames").get_string(), "9");
    EXPECT_EQ(streams[0].at("nb_read_frames").get_string(), "9");
    EXPECT_NEAR(seconds_of(streams[0]), 9.0 / fps, 2e-3);
    EXPECT_NEAR(std::stod(streams[0].at("start_time").get_string()), 0.0, 1e-6);
  }
}

TEST(VideoWriter, RatesAreKept) {
  EXPECT_EQ(ffprobe(encode_mp4(moving_square(5, 16, 16), 24.0))
                .at("streams")[0]
                .at("avg_frame_rate")
                .get_string(),
            "24/1");
  EXPECT_EQ(ffprobe(encode_mp4(moving_square(5, 16, 16), 30000.0 / 1001.0))
                .at("streams")[0]
                .at("r_frame_rate")
                .get_string(),
            "30000/1001");
}

TEST(VideoWriter, TheIndexComesFirst) {
  const std::string mp4 = encode_mp4(moving_square(5, 32, 32), 24.0);
  EXPECT_LT(mp4.find("moov"), mp4.find("mdat"));
}

TEST(VideoWriter, SoundGoesBesideThePictures) {
  for (const int64_t rate : {48000, 16000, 750}) {
    const AudioClip sound = tone(0.5, rate, 2);
    const std::string mp4 = encode_mp4(moving_square(12, 32, 48), 24.0, &sound);
    const Json streams = ffprobe(mp4).at("streams");
    ASSERT_EQ(streams.size(), 2U);
    EXPECT_EQ(streams[1].at("codec_name").get_string(), "aac");
    EXPECT_EQ(streams[1].at("channels").get_int(), 2);
    EXPECT_NEAR(seconds_of(streams[1]), 0.5, 2e-3) << rate;
    EXPECT_NEAR(seconds_of(streams[0]), 0.5, 2e-3);
    const AudioClip again = read_audio(mp4, {});
    EXPECT_EQ(again.num_channels(), 2);
    EXPECT_NEAR(again.seconds(), 0.5, 0.13) << rate;
  }
}

TEST(VideoWriter, EqualInputGivesEqualBytes) {
  const Tensor frames = moving_square(9, 32, 48);
  const AudioClip sound = tone(9.0 / 24.0, 48000, 2);
  EXPECT_EQ(encode_mp4(frames, 24.0, &sound), encode_mp4(frames, 24.0, &sound));
}

TEST(VideoWriter, OddSidesShowTheirLastLineTwice) {
  const Tensor frames = moving_square(3, 31, 47);
  const VideoClip clip = read_video(encode_mp4(frames, 24.0));
  ASSERT_EQ(clip.frames.shape(), (Shape{3, 32, 48, 3}));
  const Tensor shown = clip.frames.slice(1, 0, 31).slice(2, 0, 47).copy();
  EXPECT_LT(mean_distance(shown, frames), 3.0);
}

TEST(VideoWriter, FragmentsComeAsFramesDo) {
  const Tensor frames = moving_square(12, 32, 48);
  VideoWriter writer({.width = 48, .height = 32, .fps = 24.0, .fragmented = true});
  std::string all;
  for (int64_t begin = 0; begin < 12; begin += 4) {
    writer.add_frames(frames.slice(0, begin, begin + 4));
    const std::string piece = writer.take();
    EXPECT_NE(piece.find("moof"), std::string::npos) << begin;
    all += piece;
    // What came so far is a film of its own.
    const VideoClip clip = read_video(all);
    EXPECT_EQ(clip.frames.dim(0), begin + 4);
  }
  EXPECT_EQ(writer.take(), "");
  all += writer.finish();
  const Json streams = ffprobe(all).at("streams");
  EXPECT_EQ(streams[0].at("nb_read_frames").get_string(), "12");
  const Tensor shown = read_video(all).frames;
  EXPECT_LT(mean_distance(shown, frames), 3.0);
  // One file made in the same parts shows the same.
  VideoWriter whole({.width = 48, .height = 32, .fps = 24.0});
  for (int64_t begin = 0; begin < 12; begin += 4) {
    whole.add_frames(frames.slice(0, begin, begin + 4));
    EXPECT_EQ(whole.take(), "");
  }
  EXPECT_EQ(mean_distance(read_video(whole.finish()).frames, shown), 0.0);
}

TEST(VideoWriter, FragmentsWithSound) {
  VideoWriter writer({.width = 48,
                      .height = 32,
                      .fps = 24.0,
                      .sample_rate = 48000,
                      .num_channels = 1,
                      .fragmented = true});
  std::string all;
  for (int part = 0; part < 3; ++part) {
    writer.add_frames(moving_square(8, 32, 48));
    writer.add_sound(tone(8.0 / 24.0, 48000, 1));
    all += writer.take();
  }
  all += writer.finish();
  const Json streams = ffprobe(all).at("streams");
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams[0].at("nb_read_frames").get_string(), "24");
  EXPECT_NEAR(read_audio(all, {}).seconds(), 1.0, 0.05);
}

TEST(VideoReader, EveryContainerShowsItsFrames) {
  for (const char* name :
       {"film.mp4", "fragmented.mp4", "film.mov", "film.avi", "film.webm", "film.mkv"}) {
    const std::string bytes = file(name);
    const VideoInfo info = read_video_info(bytes);
    EXPECT_EQ(info.width, 48) << name;
    EXPECT_EQ(info.height, 32) << name;
    EXPECT_EQ(info.num_frames, 6) << name;
    EXPECT_NEAR(info.fps, 12.0, 1e-6) << name;
    const VideoClip clip = read_video(bytes);
    ASSERT_EQ(clip.frames.shape(), (Shape{6, 32, 48, 3})) << name;
    for (int64_t frame = 0; frame < 6; ++frame) {
      const uint8_t* row = clip.frames.data<uint8_t>() + (frame * 32 + 16) * 48 * 3;
      EXPECT_NEAR(row[40 * 3], 30 + 30 * frame, 6) << name << ' ' << frame;
      EXPECT_NEAR(row[8 * 3 + 1], 10 + 30 * frame, 6) << name << ' ' << frame;
    }
  }
}

TEST(VideoReader, FramesAreChosen) {
  const std::string bytes = file("film.mp4");
  const VideoClip all = read_video(bytes);
  const VideoClip first = read_video(bytes, {.first = 2});
  EXPECT_EQ(first.indexes, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(mean_distance(first.frames, all.frames.slice(0, 0, 2).copy()), 0.0);
  const VideoClip some = read_video(bytes, {.indexes = {1, 1, 4}});
  EXPECT_EQ(some.indexes, (std::vector<int64_t>{1, 1, 4}));
  EXPECT_EQ(mean_distance(some.frames.slice(0, 2, 3).copy(), all.frames.slice(0, 4, 5).copy()),
            0.0);
  // Behind the end the last frame stands in.
  const VideoClip beyond = read_video(bytes, {.indexes = {2, 9, 20}});
  EXPECT_EQ(beyond.indexes, (std::vector<int64_t>{2, 5, 5}));
  EXPECT_EQ(mean_distance(beyond.frames.slice(0, 2, 3).copy(), all.frames.slice(0, 5, 6).copy()),
            0.0);
}

TEST(VideoReader, AFilmIsTurnedAsItsHeaderSays) {
  const VideoInfo info = read_video_info(file("turned.mp4"));
  EXPECT_EQ(info.width, 32);
  EXPECT_EQ(info.height, 48);
  const VideoClip clip = read_video(file("turned.mp4"), {.first = 1});
  ASSERT_EQ(clip.frames.shape(), (Shape{1, 48, 32, 3}));
  // A quarter turn to the left puts the darker left half below.
  const uint8_t* pixels = clip.frames.data<uint8_t>();
  EXPECT_GT(pixels[(8 * 32 + 16) * 3], pixels[(40 * 32 + 16) * 3] + 10);
}

ErrorCode error_of(const std::string& bytes,
                   const VideoLimits& limits = {},
                   const VideoSelection& selection = {}) {
  try {
    read_video(bytes, selection, limits, "film");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[film]"), std::string::npos) << error.what();
    return error.code();
  }
  ADD_FAILURE() << "was read";
  return ErrorCode::kInternal;
}

TEST(VideoReader, LimitsHold) {
  for (const char* name : {"film.mp4", "film.webm"}) {
    const std::string bytes = file(name);
    EXPECT_EQ(error_of(bytes, {.max_side = 47}), ErrorCode::kTooLarge) << name;
    EXPECT_EQ(error_of(bytes, {.max_pixels = 48 * 31}), ErrorCode::kTooLarge) << name;
    EXPECT_EQ(error_of(bytes, {.max_frames = 5}), ErrorCode::kTooLarge) << name;
    EXPECT_EQ(error_of(bytes, {.max_kept_bytes = 20000}), ErrorCode::kTooLarge) << name;
    EXPECT_EQ(error_of(bytes, {.max_seconds = 0.2}), ErrorCode::kTooLarge) << name;
    EXPECT_EQ(read_video(bytes, {.first = 2}, {.max_frames = 3}).frames.dim(0), 2) << name;
  }
}

TEST(VideoReader, OtherBytesAreRefused) {
  for (const std::string& bytes : {std::string(),
                                   std::string(3000, 'x'),
                                   file("rgb.png"),
                                   file("tone.m4a"),
                                   std::string("ffconcat version 1.0\nfile /etc/passwd\n"),
                                   std::string("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n")}) {
    EXPECT_EQ(error_of(bytes), ErrorCode::kUnsupportedMedia);
  }
}

TEST(VideoReader, NoCutOrChangedByteDoesHarm) {
  const VideoLimits limits{.max_pixels = 1 << 16, .max_frames = 64};
  for (const char* name : {"film.mp4", "fragmented.mp4", "film.webm", "film.avi"}) {
    const std::string good = file(name);
    for (size_t index = 0; index < good.size(); index += index < 200 ? 7 : 101) {
      for (const bool cut : {true, false}) {
        std::string bad = cut ? good.substr(0, index) : good;
        if (!cut) {
          bad[index] = static_cast<char>(bad[index] ^ 0x5A);
        }
        try {
          EXPECT_GT(read_video(bad, {}, limits).frames.dim(0), 0);
        } catch (const Error& error) {
          EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
        }
      }
    }
  }
}

TEST(VideoReader, SoundOfFilmsAndOfFilesThatOnlyFfmpegReads) {
  for (const char* name : {"film.mp4", "film.webm", "film.mkv", "tone.m4a", "tone.aac"}) {
    const AudioClip clip = read_audio(file(name), {});
    EXPECT_NEAR(clip.seconds(), 0.5, 0.13) << name;
    EXPECT_EQ(clip.num_channels(), 1) << name;
    float most = 0.0F;
    for (const float value : clip.samples.to_floats()) {
      most = std::max(most, std::abs(value));
    }
    EXPECT_GT(most, 0.05F) << name;
    EXPECT_LE(most, 0.3F) << name;
  }
  try {
    read_audio(file("film.mov"), {});
    ADD_FAILURE() << "there is no sound in it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupportedMedia);
  }
}

TEST(SoundFiles, EveryFormatIsWrittenAndReadBack) {
  const AudioClip clip = tone(0.5, 24000, 1);
  for (const AudioFormat format : {AudioFormat::kWav,
                                   AudioFormat::kFlac,
                                   AudioFormat::kMp3,
                                   AudioFormat::kOpus,
                                   AudioFormat::kAac}) {
    const std::string bytes = write_audio(clip, format);
    EXPECT_EQ(bytes, write_audio(clip, format)) << media_type(format);
    const AudioClip again = read_audio(bytes, {});
    EXPECT_NEAR(again.seconds(), 0.5, 0.15) << media_type(format);
    // In the middle: AAC starts with a burst.
    float most = 0.0F;
    const std::vector<float> values = again.samples.to_floats();
    for (size_t i = values.size() / 4; i < values.size() * 3 / 4; ++i) {
      most = std::max(most, std::abs(values[i]));
    }
    EXPECT_NEAR(most, 0.5F, 0.05F) << media_type(format);
  }
  const std::string pcm = write_audio(clip, AudioFormat::kPcm16);
  EXPECT_EQ(pcm.size(), 24000U);
  EXPECT_EQ(write_audio(from_pcm16(pcm, 24000, 1), AudioFormat::kPcm16), pcm);
}

TEST(SoundFiles, NamesOfFormats) {
  EXPECT_EQ(parse_audio_format("mp3"), AudioFormat::kMp3);
  EXPECT_EQ(parse_audio_format("ogg"), std::nullopt);
}

}  // namespace
}  // namespace mstar
