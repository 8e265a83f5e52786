// A speech checkpoint through runtime and service: what a client sends and gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numbers>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/checkpoint/safetensors.h"
#include "mstar/media/audio.h"
#include "mstar/models/registry.h"
#include "mstar/models/whisper/features.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"
#include "mstar/tensor/compare.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGolden = MSTAR_SOURCE_DIR "/tests/golden/lm/";

// The prompt of the second recorded answer is 1, 5, 9, 4: as if these were what they are called.
constexpr const char* kLanguages = R"({"decoder_start_token_id": 1, "eos_token_id": 2,
  "lang_to_id": {"<|en|>": 5, "<|de|>": 6}, "task_to_id": {"transcribe": 9, "translate": 10},
  "no_timestamps_token_id": 4)";

// Collects the tokens of one request.
class TokenSink : public OutputSink {
 public:
  void on_output(OutputEvent event) override {
    const std::lock_guard lock(mutex_);
    if (event.kind == OutputEvent::Kind::kEmit && event.name == "new_token") {
      for (const Tensor& tensor : event.tensors) {
        for (const int64_t token : tensor.to_ints()) {
          tokens_.push_back(token);
        }
      }
    } else if (event.kind == OutputEvent::Kind::kDone || event.kind == OutputEvent::Kind::kFailed) {
      error_ = event.message;
      ended_ = true;
      changed_.notify_all();
    }
  }

  std::vector<int64_t> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    EXPECT_EQ(error_, "");
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> tokens_;
  std::string error_;
  bool ended_ = false;
};

class TextSink : public ChunkSink {
 public:
  void on_chunk(OutputChunk chunk) override {
    const std::lock_guard lock(mutex_);
    text_ += chunk.data;
    if (chunk.metadata.contains("start")) {
      const std::string place = chunk.metadata.dump();
      if (places_.empty() || places_.back() != place) {
        places_.push_back(place);
      }
    }
  }

  void on_done(const Completion&) override { end(""); }

  void on_error(ErrorCode code, const std::string& message) override {
    end(str_cat("error ", to_string(code), ": ", message));
  }

  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    return error_.empty() ? text_ : error_;
  }

  // Metadata of the parts, in order.
  const std::vector<std::string>& places() const { return places_; }

 private:
  void end(const std::string& error) {
    const std::lock_guard lock(mutex_);
    error_ = error;
    ended_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::vector<std::string> places_;
  std::string error_;
  bool ended_ = false;
};

// Two tones and a little noise, different for every number.
AudioClip sound(int number, double seconds = 0.5) {
  const auto num_frames = static_cast<int64_t>(seconds * 16000.0);
  AudioClip clip{Tensor::empty({1, num_frames}, DType::kF32), 16000};
  uint32_t noise = 12345U + static_cast<uint32_t>(number);
  for (int64_t frame = 0; frame < num_frames; ++frame) {
    const double time = static_cast<double>(frame) / 16000.0 * 2.0 * std::numbers::pi;
    noise = noise * 1664525U + 1013904223U;
    clip.samples.data<float>()[frame] =
        static_cast<float>(0.4 * std::sin(time * (200.0 + 170.0 * number)) +
                           0.2 * std::sin(time * (3100.0 - 290.0 * number)) +
                           0.02 * (static_cast<double>(noise >> 8) / 16777216.0 - 0.5));
  }
  return clip;
}

ModelRequest request_for(std::string bytes, const std::string& parameters) {
  ModelRequest request;
  request.request_id = "r";
  request.media.push_back({.modality = Modality::kAudio,
                           .bytes = std::make_shared<const std::string>(std::move(bytes)),
                           .name = "sound.wav"});
  request.messages = {{"user", {{.modality = Modality::kAudio, .text = "", .media = 0}}}};
  request.output_modalities = {Modality::kText};
  request.parameters = Json::parse(parameters);
  return request;
}

class WhisperServeTest : public ::testing::Test {
 protected:
  ~WhisperServeTest() override {
    service_.reset();
    runtime_.reset();
    if (!folder_.empty()) {
      fs::remove_all(folder_);
    }
  }

  // The recorded checkpoint, with another generation_config.json when one is given.
  void start(const std::string& generation = "", bool capture = true) {
    std::string path = str_cat(kGolden, "checkpoints/whisper");
    if (!generation.empty()) {
      const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
      folder_ = (fs::temp_directory_path() / str_cat("mstar_whisper_", test->name())).string();
      fs::remove_all(folder_);
      fs::copy(path, folder_);
      std::ofstream(folder_ + "/generation_config.json") << generation;
      path = folder_;
    }
    model_ = open_model(path, Json::object());
    RuntimeOptions options;
    options.num_threads = 2;
    options.engine.graph_capture = capture;
    runtime_ = std::make_unique<Runtime>(*model_, Deployment{}, options);
    service_ = std::make_unique<Service>(*model_, runtime_->conductor());
  }

  // The tokens that `features` give; the sound itself is replaced.
  std::vector<int64_t> tokens(const Tensor& features, const std::string& parameters) {
    PreparedRequest prepared =
        model_->process_prompt(request_for(write_audio(sound(0), AudioFormat::kWav), parameters));
    prepared.inputs.set("audio_features", features);
    auto sink = std::make_shared<TokenSink>();
    runtime_->conductor().submit(
        std::make_shared<const PreparedRequest>(std::move(prepared)), sink, false);
    return sink->wait();
  }

  std::shared_ptr<TextSink> ask(int number, const std::string& parameters = "{}") {
    return ask(write_audio(sound(number), AudioFormat::kFlac), parameters);
  }

  std::shared_ptr<TextSink> ask(std::string bytes, const std::string& parameters) {
    auto sink = std::make_shared<TextSink>();
    service_->submit(request_for(std::move(bytes), parameters), sink, false);
    return sink;
  }

  // Recorded features as the encoder takes them, and the recorded tokens.
  static Tensor golden_features(int index) {
    const auto file = open_checkpoint(str_cat(kGolden, "whisper.safetensors"));
    return file->get(str_cat("features", index)).transpose(0, 1).copy();
  }

  static std::vector<int64_t> golden_tokens(int index) {
    const auto file = open_checkpoint(str_cat(kGolden, "whisper.safetensors"));
    return file->get(str_cat("greedy", index)).to_ints();
  }

  std::string folder_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Service> service_;
};

TEST_F(WhisperServeTest, RecordedTokensWithoutLanguages) {
  start();
  EXPECT_EQ(tokens(golden_features(0), R"({"max_tokens":32,"ignore_eos":true})"), golden_tokens(0));
}

TEST_F(WhisperServeTest, RecordedTokensWithALanguageAndATask) {
  for (const bool capture : {true, false}) {
    start(str_cat(kLanguages, "}"), capture);
    EXPECT_EQ(tokens(golden_features(1),
                     R"({"max_tokens":32,"ignore_eos":true,"language":"en","task":"transcribe"})"),
              golden_tokens(1));
    service_.reset();
    runtime_.reset();
  }
}

TEST_F(WhisperServeTest, ALanguageThatIsNotGivenIsHeard) {
  start(str_cat(kLanguages, "}"));
  std::vector<std::string> heard;
  for (int number = 0; number < 4; ++number) {
    const std::string own = ask(number, R"({"max_tokens":12})")->wait();
    const std::string english = ask(number, R"({"max_tokens":12,"language":"en"})")->wait();
    const std::string german = ask(number, R"({"max_tokens":12,"language":"de"})")->wait();
    EXPECT_NE(english, german);
    EXPECT_TRUE(own == english || own == german) << own;
  }
}

TEST_F(WhisperServeTest, TokensThatAreSuppressedNeverCome) {
  const std::string parameters = R"({"max_tokens":32,"ignore_eos":true,"language":"en"})";
  start(str_cat(kLanguages, R"(,"suppress_tokens":[92],"begin_suppress_tokens":[22,140]})"));
  const std::vector<int64_t> drawn = tokens(golden_features(1), parameters);
  EXPECT_EQ(drawn.size(), 32U);
  EXPECT_EQ(std::ranges::count(drawn, 92), 0);
  EXPECT_NE(drawn.front(), 22);
  EXPECT_NE(std::ranges::count(drawn, 22) + std::ranges::count(drawn, 140), 0);
}

TEST_F(WhisperServeTest, TheTextEndsAtTheEndToken) {
  // The seventh recorded token, 28, ends the text here; it comes once before.
  start(R"({"decoder_start_token_id": 1, "eos_token_id": [28]})");
  const std::vector<int64_t> recorded = golden_tokens(0);
  const auto end = std::ranges::find(recorded, 28);
  ASSERT_NE(end, recorded.end());
  EXPECT_EQ(tokens(golden_features(0), "{}"), std::vector<int64_t>(recorded.begin(), end + 1));
}

TEST_F(WhisperServeTest, TogetherAsAlone) {
  start(str_cat(kLanguages, "}"));
  std::vector<std::string> alone;
  const auto parameters = [](int number) {
    return str_cat(R"({"max_tokens":)",
                   8 + 3 * number,
                   R"(,"seed":7,"temperature":)",
                   number % 2,
                   number % 3 == 0 ? "" : R"(,"language":"en")",
                   "}");
  };
  for (int number = 0; number < 8; ++number) {
    alone.push_back(ask(number, parameters(number))->wait());
    EXPECT_FALSE(alone.back().empty());
  }
  std::vector<std::shared_ptr<TextSink>> together;
  for (int number = 0; number < 8; ++number) {
    together.push_back(ask(number, parameters(number)));
  }
  for (size_t number = 0; number < together.size(); ++number) {
    EXPECT_EQ(together[number]->wait(), alone[number]) << number;
  }
  ASSERT_TRUE(runtime_->conductor().drain(std::chrono::seconds(20)));
  for (const Scheduler::Stats& stats : runtime_->scheduler_stats()) {
    EXPECT_EQ(stats.num_requests, 0);
    EXPECT_EQ(stats.num_live_payloads, 0);
  }
}

TEST_F(WhisperServeTest, FeaturesAreTheSounds) {
  start();
  const whisper::LogMel log_mel({.num_mel_bins = 16, .num_frames = 80});
  const AudioClip clip = sound(3);
  const Tensor expected =
      log_mel({clip.samples.data<float>(), static_cast<size_t>(clip.num_frames())});
  const Tensor features =
      model_->process_prompt(request_for(write_audio(clip, AudioFormat::kWav), "{}"))
          .inputs.tensor("audio_features");
  const Comparison same = compare(features, expected, {.atol = 2e-3, .rtol = 0.0});
  EXPECT_TRUE(same.passed) << same.to_string();

  // Another rate and two channels: the same sound.
  AudioClip stereo = resample(clip, 44100);
  Tensor both = Tensor::empty({2, stereo.num_frames()}, DType::kF32);
  for (int64_t frame = 0; frame < stereo.num_frames(); ++frame) {
    const float value = stereo.samples.data<float>()[frame];
    both.data<float>()[frame] = value * 0.5F;
    both.data<float>()[stereo.num_frames() + frame] = value * 1.5F;
  }
  stereo.samples = both;
  const std::vector<float> other =
      model_->process_prompt(request_for(write_audio(stereo, AudioFormat::kFlac), "{}"))
          .inputs.tensor("audio_features")
          .to_floats();
  const std::vector<float> own = expected.to_floats();
  double sum = 0.0;
  for (size_t index = 0; index < own.size(); ++index) {
    sum += std::abs(own[index] - other[index]);
  }
  EXPECT_LT(sum / static_cast<double>(own.size()), 0.03);
}

TEST_F(WhisperServeTest, RequestsThatCannotBeAnsweredAreRefused) {
  start(str_cat(kLanguages, "}"));
  const std::string good = write_audio(sound(1), AudioFormat::kWav);
  const auto refused = [&](std::string bytes, const std::string& parameters) {
    return ask(std::move(bytes), parameters)->wait();
  };
  AudioClip endless = sound(1, 1.0);
  endless.sample_rate = 1000;
  endless.samples = Tensor::zeros({1, 1'900'000}, DType::kF32);
  const std::string longer = refused(write_audio(endless, AudioFormat::kFlac), "{}");
  EXPECT_NE(longer.find("the sound lasts 1900 seconds, at most 1800 are heard"), std::string::npos)
      << longer;
  EXPECT_NE(longer.find("invalid_argument"), std::string::npos) << longer;
  EXPECT_THROW(
      model_->process_prompt(request_for(write_audio(sound(1, 1.0), AudioFormat::kWav), "{}")),
      Error);
  EXPECT_NE(refused("no sound", "{}").find("no sound file"), std::string::npos);
  EXPECT_NE(refused(good, R"({"language":"xx"})").find("language"), std::string::npos);
  EXPECT_NE(refused(good, R"({"task":"sing"})").find("task"), std::string::npos);

  ModelRequest silent = request_for(good, "{}");
  silent.media.clear();
  EXPECT_THROW(model_->process_prompt(silent), Error);
  ModelRequest two = request_for(good, "{}");
  two.media.push_back(two.media.front());
  EXPECT_THROW(model_->process_prompt(two), Error);
}

// A pause between two sounds is where a long one is cut; each piece is answered as if it were
// alone.
TEST_F(WhisperServeTest, LongSoundIsHeardInPieces) {
  start(str_cat(kLanguages, "}"));
  const AudioClip first = sound(1, 0.65);
  const AudioClip second = sound(2, 0.5);
  AudioClip both{Tensor::zeros({1, 16000 * 125 / 100}, DType::kF32), 16000};
  std::copy_n(first.samples.data<float>(), first.num_frames(), both.samples.data<float>());
  std::copy_n(second.samples.data<float>(),
              second.num_frames(),
              both.samples.data<float>() + 16000 * 75 / 100);
  const char* parameters = R"({"max_tokens":10,"ignore_eos":true})";
  const auto whole = ask(write_audio(both, AudioFormat::kFlac), parameters);
  const std::string text = whole->wait();
  ASSERT_EQ(whole->places().size(), 2U) << text;
  const Json one = Json::parse(whole->places()[0]);
  const Json two = Json::parse(whole->places()[1]);
  const double cut = one.at("end").get_double();
  EXPECT_EQ(one.at("start").get_double(), 0.0);
  EXPECT_NEAR(cut, 0.7, 0.06);
  EXPECT_EQ(two.at("start").get_double(), cut);
  EXPECT_EQ(two.at("end").get_double(), 1.25);
  EXPECT_TRUE(one.at("language") == Json("en") || one.at("language") == Json("de"));

  const auto at = static_cast<int64_t>(std::lround(cut * 16000.0));
  std::string apart;
  for (const Tensor& samples :
       {both.samples.slice(1, 0, at), both.samples.slice(1, at, both.num_frames())}) {
    const AudioClip piece{samples.copy(), 16000};
    apart += ask(write_audio(piece, AudioFormat::kFlac), parameters)->wait();
  }
  EXPECT_EQ(text, apart);
}

TEST_F(WhisperServeTest, TextBeforeTheSoundIsReadFirst) {
  start(str_cat(kLanguages, "}"));
  ModelRequest request =
      request_for(write_audio(sound(1), AudioFormat::kWav), R"({"language":"en"})");
  request.messages.front().content.push_back({.text = "Hello <|endoftext|>"});
  const PreparedRequest prepared = model_->process_prompt(request);
  const std::vector<int64_t> ids = prepared.inputs.tensor("text_inputs").to_ints();
  // <|startofprev|>, a space and the letters, the prompt: markers in the text are plain letters.
  ASSERT_EQ(ids.size(), 1U + 20U + 4U);
  EXPECT_EQ(ids.front(), 3);
  EXPECT_EQ(std::vector<int64_t>(ids.end() - 4, ids.end()), (std::vector<int64_t>{1, 5, 9, 4}));
  EXPECT_EQ(std::ranges::count(ids, 2), 0);

  request.messages.front().content.back().text = std::string(500, 'a');
  EXPECT_EQ(model_->process_prompt(request).inputs.tensor("text_inputs").dim(0), 1 + 31 + 4);
}

}  // namespace
}  // namespace mstar
