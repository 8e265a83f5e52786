#include "mstar/media/audio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "mstar/base/error.h"

namespace mstar {
namespace {

AudioClip tone(double frequency, double seconds, int64_t sample_rate, int64_t channels = 1) {
  const auto num_frames = static_cast<int64_t>(seconds * static_cast<double>(sample_rate));
  AudioClip clip{Tensor::empty({channels, num_frames}, DType::kF32), sample_rate};
  auto* to = clip.samples.data<float>();
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t frame = 0; frame < num_frames; ++frame) {
      const double time = static_cast<double>(frame) / static_cast<double>(sample_rate);
      *to++ = static_cast<float>(0.5 / static_cast<double>(channel + 1) *
                                 std::sin(2.0 * std::numbers::pi * frequency * time));
    }
  }
  return clip;
}

// Largest difference between two clips of one shape, away from the ends.
double distance(const AudioClip& a, const AudioClip& b, int64_t margin) {
  EXPECT_EQ(a.samples.shape(), b.samples.shape());
  EXPECT_EQ(a.sample_rate, b.sample_rate);
  const std::vector<float> left = a.samples.to_floats();
  const std::vector<float> right = b.samples.to_floats();
  const auto num_frames = static_cast<size_t>(a.num_frames());
  double worst = 0.0;
  for (size_t index = 0; index < left.size(); ++index) {
    const size_t frame = index % num_frames;
    if (frame >= static_cast<size_t>(margin) && frame + static_cast<size_t>(margin) < num_frames) {
      worst = std::max(worst, static_cast<double>(std::abs(left[index] - right[index])));
    }
  }
  return worst;
}

ErrorCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST(AudioTest, WhatIsWrittenIsRead) {
  const AudioClip clip = tone(440.0, 0.25, 22050, 2);
  for (const AudioFormat format : {AudioFormat::kWav, AudioFormat::kFlac}) {
    const std::string file = write_audio(clip, format);
    const AudioInfo info = read_audio_info(file);
    EXPECT_EQ(info.sample_rate, 22050);
    EXPECT_EQ(info.num_channels, 2);
    EXPECT_EQ(info.num_frames, clip.num_frames());
    EXPECT_LT(distance(read_audio(file, {}), clip, 0), 1.0 / 32000);
  }
}

TEST(AudioTest, ClipsWhatSixteenBitsCannotHold) {
  AudioClip clip = tone(440.0, 0.01, 16000);
  clip.samples.data<float>()[0] = 3.0F;
  clip.samples.data<float>()[1] = NAN;
  clip.samples.data<float>()[2] = -INFINITY;
  const std::vector<float> read =
      read_audio(write_audio(clip, AudioFormat::kWav), {}).samples.to_floats();
  EXPECT_NEAR(read[0], 1.0, 1e-3);
  EXPECT_EQ(read[1], 0.0F);
  EXPECT_NEAR(read[2], -1.0, 1e-3);
}

TEST(AudioTest, PipedWavWithoutALengthReachesToTheEnd) {
  const AudioClip clip = tone(440.0, 0.1, 16000);
  const std::string good = write_audio(clip, AudioFormat::kWav);
  const size_t size_offset = good.find("data") + 4;
  for (const char fill : {'\0', '\xff'}) {
    std::string piped = good;
    for (size_t index = 0; index < 4; ++index) {
      piped[4 + index] = fill;
      piped[size_offset + index] = fill;
    }
    EXPECT_EQ(read_audio_info(piped).num_frames, clip.num_frames());
    EXPECT_LT(distance(read_audio(piped, {}), clip, 0), 1.0 / 32000);
  }
}

TEST(AudioTest, ACutFileEndsWhereItIsCut) {
  const AudioClip clip = tone(440.0, 0.1, 16000);
  const std::string good = write_audio(clip, AudioFormat::kWav);
  const AudioClip half = read_audio(good.substr(0, good.size() - 1600), {});
  EXPECT_EQ(half.num_frames(), clip.num_frames() - 800);
}

TEST(AudioTest, HeadersAreCheckedBeforeAnythingIsDecoded) {
  const std::string file = write_audio(tone(440.0, 2.0, 8000, 2), AudioFormat::kFlac);
  EXPECT_EQ(code_of([&] { read_audio(file, {.max_seconds = 1.0}); }), ErrorCode::kTooLarge);
  EXPECT_EQ(code_of([&] { read_audio(file, {.max_channels = 1}); }), ErrorCode::kTooLarge);
  EXPECT_EQ(code_of([&] { read_audio(file, {.min_sample_rate = 16000}); }),
            ErrorCode::kUnsupportedMedia);
  EXPECT_EQ(read_audio(file, {.max_seconds = 2.0}).num_frames(), 16000);
}

TEST(AudioTest, OtherBytesAreRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("RIFF"), std::string(5000, 'x'), std::string("\x89PNG\r\n")}) {
    EXPECT_EQ(code_of([&] { read_audio(bytes, {}); }), ErrorCode::kUnsupportedMedia);
  }
  const std::string empty =
      write_audio({Tensor::empty({1, 0}, DType::kF32), 16000}, AudioFormat::kWav);
  EXPECT_EQ(code_of([&] { read_audio(empty, {}); }), ErrorCode::kUnsupportedMedia);
}

TEST(AudioTest, NoCutOrChangedByteDoesHarm) {
  for (const AudioFormat format : {AudioFormat::kWav, AudioFormat::kFlac}) {
    const std::string good = write_audio(tone(440.0, 0.02, 16000, 2), format);
    for (size_t index = 0; index < good.size(); index += index < 100 ? 1 : 37) {
      for (const bool cut : {true, false}) {
        std::string bad = cut ? good.substr(0, index) : good;
        if (!cut) {
          bad[index] = static_cast<char>(bad[index] ^ 0x5A);
        }
        try {
          EXPECT_GT(read_audio(bad, {}).num_frames(), 0);
        } catch (const Error& error) {
          EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
        }
      }
    }
  }
}

TEST(AudioTest, MonoIsTheMeanOfTheChannels) {
  const AudioClip mono = to_mono(tone(440.0, 0.05, 16000, 2));
  AudioClip expected = tone(440.0, 0.05, 16000);
  for (int64_t frame = 0; frame < expected.num_frames(); ++frame) {
    expected.samples.data<float>()[frame] *= 0.75F;
  }
  EXPECT_LT(distance(mono, expected, 0), 1e-6);
}

TEST(ResampleTest, ATonePassesUnchanged) {
  for (const int64_t rate : {8000, 11025, 22050, 44100, 48000, 96000, 16001}) {
    const AudioClip out = resample(tone(1000.0, 0.5, rate), 16000);
    const double tolerance = rate == 16001 ? 2e-4 : 2e-5;  // an odd ratio: nearest phases
    EXPECT_LT(distance(out, tone(1000.0, 0.5, 16000), 400), tolerance) << rate;
  }
}

TEST(ResampleTest, AConstantStaysOne) {
  AudioClip clip{Tensor::empty({1, 4410}, DType::kF32), 44100};
  std::fill_n(clip.samples.data<float>(), 4410, 0.25F);
  const std::vector<float> out = resample(clip, 16000).samples.to_floats();
  EXPECT_EQ(out.size(), 1600U);
  for (size_t index = 200; index + 200 < out.size(); ++index) {
    EXPECT_NEAR(out[index], 0.25F, 1e-6) << index;
  }
}

TEST(ResampleTest, NothingAboveHalfTheRateComesThrough) {
  const AudioClip out = resample(tone(9000.0, 0.5, 44100), 16000);
  AudioClip silence = out;
  silence.samples = Tensor::zeros(out.samples.shape(), DType::kF32);
  EXPECT_LT(distance(out, silence, 400), 1e-4);
}

TEST(ResampleTest, LengthsAreRoundedUp) {
  AudioClip clip{Tensor::zeros({2, 44101}, DType::kF32), 44100};
  EXPECT_EQ(resample(clip, 16000).samples.shape(), (Shape{2, 16001}));
  clip.samples = Tensor::zeros({1, 1}, DType::kF32);
  EXPECT_EQ(resample(clip, 8000).num_frames(), 1);
}

}  // namespace
}  // namespace mstar
