// Conversations with a Cosmos3 Edge checkpoint through runtime and service: pictures, text, both
// towers on one copy of the weights.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>

#include "mstar/base/error.h"
#include "mstar/base/text_file.h"
#include "mstar/checkpoint/safetensors.h"
#include "mstar/media/image.h"
#include "mstar/media/video.h"
#include "mstar/models/cosmos3/dit_submodule.h"
#include "mstar/models/cosmos3/reasoner_submodule.h"
#include "mstar/models/cosmos3/vision_submodule.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEdge = MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/edge";

// The tiny Edge checkpoint, with a lower bound for the size of pictures: they take 16 tokens and
// more instead of 1024.
class SmallPictures {
 public:
  SmallPictures()
      : folder_(fs::temp_directory_path() / ("mstar_cosmos3_chat_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::copy(kEdge, folder_, fs::copy_options::recursive);
    const fs::path path = folder_ / "preprocessor_config.json";
    std::string text = read_text_file(path.string());
    const std::string bound = "65536";
    text.replace(text.find(bound), bound.size(), "1024");
    std::ofstream(path) << text;
  }

  ~SmallPictures() { fs::remove_all(folder_); }

  std::string folder() const { return folder_.string(); }

  // Puts a NaN into a tensor of the transformer.
  void spoil(const std::string& name) const {
    for (const auto& entry : fs::directory_iterator(folder_ / "transformer")) {
      if (entry.path().extension() != ".safetensors") {
        continue;
      }
      std::vector<std::pair<std::string, Tensor>> tensors;
      {
        const auto reader = SafetensorsFile::open(entry.path().string());
        for (const TensorInfo& info : reader->tensors()) {
          Tensor tensor = reader->get(info).copy();
          if (info.name == name) {
            tensor = Tensor::zeros(tensor.shape(), DType::kF32);
            *tensor.data<float>() = std::numeric_limits<float>::quiet_NaN();
          }
          tensors.emplace_back(info.name, std::move(tensor));
        }
      }
      write_safetensors(entry.path().string(), tensors);
    }
  }

 private:
  fs::path folder_;
};

class Answer : public ChunkSink {
 public:
  void on_chunk(OutputChunk chunk) override {
    const std::lock_guard lock(mutex_);
    if (chunk.modality == Modality::kText) {
      EXPECT_TRUE(media.empty()) << "text behind media";
      text += chunk.data;
      logprobs.insert(logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    } else {
      media.push_back(std::move(chunk));
    }
  }

  void on_done(const Completion& how) override {
    completion = how;
    end();
  }

  void on_error(ErrorCode error_code, const std::string& error_message) override {
    failed = true;
    code = error_code;
    message = error_message;
    end();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
  }

  std::string text;
  std::vector<TokenLogprob> logprobs;
  std::vector<OutputChunk> media;
  Completion completion;
  bool failed = false;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

 private:
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

using AnswerPtr = std::shared_ptr<Answer>;

// A conversation of one message: parts in order, a text or a file's bytes.
struct Question {
  std::vector<std::string> parts;
  // The likeliest token, but no token again and again: a tiny random model would.
  std::string parameters =
      R"({"temperature":0,"repetition_penalty":2,"max_tokens":12,"ignore_eos":true})";
  std::vector<Modality> outputs = {Modality::kText};
};

ModelRequest request_of(const Question& question) {
  ModelRequest request;
  ChatMessage message;
  message.role = "user";
  for (const std::string& part : question.parts) {
    Modality modality = Modality::kText;
    if (image_format(part)) {
      modality = Modality::kImage;
    } else if (part.size() > 8 && part.substr(4, 4) == "ftyp") {
      modality = Modality::kVideo;
    }
    if (modality == Modality::kText) {
      message.content.push_back({.text = part});
    } else {
      const auto index = static_cast<int>(request.media.size());
      message.content.push_back({.modality = modality, .text = "", .media = index});
      request.media.push_back(
          {modality, std::make_shared<const std::string>(part), "file " + std::to_string(index)});
    }
  }
  request.messages.push_back(std::move(message));
  request.output_modalities = question.outputs;
  request.parameters = Json::parse(question.parameters);
  return request;
}

class Served {
 public:
  explicit Served(const std::string& folder, RuntimeOptions options = {.num_threads = 2})
      : model_(open_model(folder, Json::object())),
        runtime_(*model_, Deployment{}, std::move(options)),
        service_(*model_, runtime_.conductor()) {}

  AnswerPtr ask(ModelRequest request) {
    request.request_id = std::to_string(++num_asked_);
    auto answer = std::make_shared<Answer>();
    service_.submit(std::move(request), answer, false);
    return answer;
  }

  AnswerPtr ask(const Question& question) { return ask(request_of(question)); }

  template <typename Asked>
  AnswerPtr get(const Asked& asked) {
    AnswerPtr answer = ask(asked);
    answer->wait();
    return answer;
  }

  const Model& model() const { return *model_; }

  template <typename Submodule>
  const Submodule& node(std::string_view name) const {
    return dynamic_cast<const Submodule&>(runtime_.engine(0).submodule(name));
  }

 private:
  std::unique_ptr<Model> model_;
  Runtime runtime_;
  Service service_;
  int num_asked_ = 0;
};

std::string picture(int64_t height, int64_t width, int64_t colour = 3) {
  Tensor pixels = Tensor::empty({height, width, 3}, DType::kU8);
  for (int64_t i = 0; i < pixels.num_elements(); ++i) {
    pixels.data<uint8_t>()[i] = static_cast<uint8_t>((i * colour + i / (3 * width) * 7) % 253);
  }
  return encode_png(pixels);
}

TEST(Cosmos3Chat, EightAtOnceAnswerAsAlone) {
  const SmallPictures checkpoint;
  std::vector<Question> questions;
  for (int i = 0; i < 8; ++i) {
    questions.push_back({.parts = {"Number " + std::to_string(i) + ": what is ",
                                   picture(20 + 13 * i, 90 - 7 * i, i + 1),
                                   "?"}});
  }
  questions[5].parts.push_back(picture(40, 40));
  questions[6].parts = {"No picture here."};
  std::vector<std::string> alone;
  {
    Served served(checkpoint.folder());
    for (const Question& question : questions) {
      const AnswerPtr answer = served.get(question);
      ASSERT_FALSE(answer->failed) << answer->message;
      EXPECT_EQ(answer->completion.num_generated_tokens, 12);
      EXPECT_EQ(answer->completion.finish_reason, "length");
      alone.push_back(answer->text);
    }
    EXPECT_NE(alone[0], alone[1]);
    // The picture matters, not only its size.
    Question other = questions[0];
    other.parts[1] = picture(20, 90, 100);
    EXPECT_NE(served.get(other)->text, alone[0]);
  }
  // Together; then prompts in pieces that cut through pictures, with nothing recorded.
  for (const int64_t batch_tokens : {512, 16}) {
    RuntimeOptions options{.num_threads = 2, .max_batch_tokens = batch_tokens};
    options.engine.graph_capture = batch_tokens == 512;
    Served served(checkpoint.folder(), options);
    std::vector<AnswerPtr> answers;
    for (const Question& question : questions) {
      answers.push_back(served.ask(question));
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      answers[i]->wait();
      ASSERT_FALSE(answers[i]->failed) << answers[i]->message;
      EXPECT_EQ(answers[i]->text, alone[i]) << i << ", " << batch_tokens << " tokens a step";
    }
  }
}

Tensor moving_frames(int64_t count, int64_t height, int64_t width) {
  Tensor frames = Tensor::empty({count, height, width, 3}, DType::kU8);
  for (int64_t i = 0; i < frames.num_elements(); ++i) {
    const int64_t frame = i / (height * width * 3);
    frames.data<uint8_t>()[i] = static_cast<uint8_t>((i / 3 % width * 4 + frame * 20) % 256);
  }
  return frames;
}

TEST(Cosmos3Chat, APictureAndAVideoInOneMessage) {
  const SmallPictures checkpoint;
  Served served(checkpoint.folder());
  const Tensor frames = moving_frames(30, 64, 80);
  const Question question{
      .parts = {"Here is ", picture(32, 48), " and ", encode_mp4(frames, 10.0), "."}};
  const auto answer = served.get(question);
  ASSERT_FALSE(answer->failed) << answer->message;
  EXPECT_EQ(answer->completion.num_generated_tokens, 12);
  // 3 seconds: 6 frames of 64 x 80 pixels, each behind its time and between two marks.
  const auto without = served.get(Question{.parts = {"Here is ", picture(32, 48), " and ."}});
  EXPECT_GT(answer->completion.num_prompt_tokens,
            without->completion.num_prompt_tokens + 6 * (80 + 2));
  EXPECT_LT(answer->completion.num_prompt_tokens,
            without->completion.num_prompt_tokens + 6 * (80 + 2 + 12));
  // The order counts; a spread of tokens shows what the likeliest ones would hide.
  Question spread = question;
  spread.parameters = R"({"temperature":2,"seed":3,"max_tokens":40,"ignore_eos":true})";
  Question turned = spread;
  std::swap(turned.parts[1], turned.parts[3]);
  EXPECT_EQ(served.get(spread)->text, served.get(spread)->text);
  EXPECT_NE(served.get(turned)->text, served.get(spread)->text);
  Question fewer = question;
  fewer.parameters = R"({"temperature":0,"max_tokens":8,"ignore_eos":true,"video_num_frames":2})";
  EXPECT_LT(served.get(fewer)->completion.num_prompt_tokens,
            without->completion.num_prompt_tokens + 2 * (80 + 2 + 12));
}

TEST(Cosmos3Chat, AVideoWhoseHeaderTellsNoFrameCount) {
  const SmallPictures checkpoint;
  Served served(checkpoint.folder());
  VideoWriter writer({.width = 80, .height = 64, .fps = 10.0, .fragmented = true});
  writer.add_frames(moving_frames(30, 64, 80));
  std::string bytes = writer.take();
  bytes += writer.finish();
  const auto answer = served.get(Question{.parts = {"What is this? ", bytes}});
  ASSERT_FALSE(answer->failed) << answer->message;
  const auto whole = served.get(
      Question{.parts = {"What is this? ", encode_mp4(moving_frames(30, 64, 80), 10.0)}});
  EXPECT_EQ(answer->completion.num_prompt_tokens, whole->completion.num_prompt_tokens);
  EXPECT_EQ(answer->text, whole->text);
  const auto cut = served.get(Question{.parts = {bytes.substr(0, 300)}});
  EXPECT_TRUE(cut->failed);
  EXPECT_EQ(cut->code, ErrorCode::kUnsupportedMedia) << cut->message;
}

TEST(Cosmos3Chat, TextAloneNeverTouchesTheVisionTower) {
  const SmallPictures checkpoint;
  Served served(checkpoint.folder());
  const auto& tower = served.node<cosmos3::Cosmos3VisionEncoderSubmodule>("vision_encoder");
  ASSERT_FALSE(served.get(Question{.parts = {"Hello <|image_pad|>"}})->failed);
  EXPECT_FALSE(tower.has_weights());
  ASSERT_FALSE(served.get(Question{.parts = {picture(32, 32)}})->failed);
  EXPECT_TRUE(tower.has_weights());
}

TEST(Cosmos3Chat, BothTowersShareOneCopyOfTheWeights) {
  Served served(kEdge);
  EXPECT_EQ(&served.node<cosmos3::Cosmos3DiTSubmodule>("dit").transformer(),
            &served.node<cosmos3::Cosmos3ReasonerSubmodule>("reasoner").transformer());
}

TEST(Cosmos3Chat, TokensOfPicturesAreCounted) {
  const SmallPictures checkpoint;
  Served served(checkpoint.folder());
  const auto without = served.get(Question{.parts = {"What is this?"}});
  // 32 x 48 pixels, 8 x 8 of them a token, and the two marks around.
  const auto with = served.get(Question{.parts = {"What is this?", picture(32, 48)}});
  EXPECT_EQ(with->completion.num_prompt_tokens, without->completion.num_prompt_tokens + 24 + 2);
  Question many{.parts = {"What are these?"}};
  for (int i = 0; i < 40; ++i) {
    many.parts.push_back(picture(32, 32, i));
  }
  const auto answer = served.get(many);
  ASSERT_FALSE(answer->failed) << answer->message;
  EXPECT_GT(answer->completion.num_prompt_tokens, 40 * (16 + 2));
}

TEST(Cosmos3Chat, PicturesOfOddSizes) {
  Served served(kEdge);
  const auto tiny = served.get(Question{.parts = {"What is this?", picture(1, 1)}});
  ASSERT_FALSE(tiny->failed) << tiny->message;
  EXPECT_GT(tiny->completion.num_prompt_tokens, 1024);
  const auto long_one = served.get(Question{.parts = {picture(20, 10000)}});
  EXPECT_TRUE(long_one->failed);
  EXPECT_EQ(long_one->code, ErrorCode::kInvalidArgument);
  EXPECT_NE(long_one->message.find("10000x20"), std::string::npos) << long_one->message;
  Question many{.parts = {"What are these?"}};
  many.parts.resize(41, picture(8, 8));
  const auto too_many = served.get(many);
  EXPECT_TRUE(too_many->failed);
  EXPECT_EQ(too_many->code, ErrorCode::kInvalidArgument);
  EXPECT_NE(too_many->message.find("this model reads 16383 at most"), std::string::npos)
      << too_many->message;
}

// They change no answer: not their own, not the one beside them, not what is generated from it.
TEST(Cosmos3Chat, LogprobsAreToldWhereAskedFor) {
  const SmallPictures checkpoint;
  Served served(checkpoint.folder());
  const Question plain{.parts = {"What is this?", picture(40, 70)},
                       .parameters = R"({"temperature":0,"max_tokens":9,"ignore_eos":true})"};
  Question telling = plain;
  telling.parameters.insert(1, R"("logprobs":3,)");
  const std::string alone = served.get(plain)->text;
  const std::vector<AnswerPtr> answers = {served.ask(plain), served.ask(telling)};
  for (const AnswerPtr& answer : answers) {
    answer->wait();
    ASSERT_FALSE(answer->failed) << answer->message;
    EXPECT_EQ(answer->text, alone);
  }
  EXPECT_TRUE(answers[0]->logprobs.empty());
  ASSERT_EQ(answers[1]->logprobs.size(), 9U);
  for (const TokenLogprob& told : answers[1]->logprobs) {
    ASSERT_EQ(told.top.size(), 3U);
    EXPECT_EQ(told.token.bytes, told.top[0].bytes) << "the likeliest is drawn";
    EXPECT_EQ(told.token.logprob, told.top[0].logprob);
    EXPECT_LT(told.token.logprob, 0.0);
    EXPECT_GE(told.top[1].logprob, told.top[2].logprob);
  }
  Question too_many = plain;
  too_many.parameters.insert(1, R"("logprobs":21,)");
  EXPECT_EQ(served.get(too_many)->code, ErrorCode::kInvalidArgument);
}

TEST(Cosmos3Chat, ABrokenWeightFailsTheAnswerNamingTheNode) {
  const SmallPictures checkpoint;
  checkpoint.spoil("norm.weight");
  Served served(checkpoint.folder());
  const AnswerPtr answer = served.get(Question{.parts = {"Hello"}});
  EXPECT_TRUE(answer->failed);
  EXPECT_NE(answer->message.find("node reasoner of walk reasoner_prefill"), std::string::npos)
      << answer->message;
}

TEST(Cosmos3Chat, WrongRequestsAreRefusedAndSayWhy) {
  const SmallPictures checkpoint;
  Served served(checkpoint.folder());
  const auto expect_refused = [&](const ModelRequest& request, const char* about) {
    const auto answer = served.get(request);
    EXPECT_TRUE(answer->failed) << about;
    EXPECT_EQ(answer->code, ErrorCode::kInvalidArgument) << answer->message;
    EXPECT_NE(answer->message.find(about), std::string::npos) << answer->message;
  };
  const Question question{.parts = {"What is this?", picture(32, 32)}};
  ModelRequest elsewhere = request_of(question);
  elsewhere.messages[0].content[1].media = 3;
  expect_refused(elsewhere, "refers to file 3");
  ModelRequest another_kind = request_of(question);
  another_kind.messages[0].content[1].modality = Modality::kVideo;
  expect_refused(another_kind, "as video");
  ModelRequest unbound = request_of(question);
  unbound.messages[0].content.pop_back();
  expect_refused(unbound, "no message refers to file 0");
  ModelRequest raw = request_of(question);
  raw.raw_prompt = true;
  expect_refused(raw, "chat template");
  ModelRequest bias = request_of(Question{.parts = {"Hello"}});
  bias.parameters.set("logit_bias", Json::object({{"512", 1.0}}));
  expect_refused(bias, "logit_bias");
  ModelRequest both = request_of(question);
  both.parameters.set("video_fps", 1.0);
  both.parameters.set("video_num_frames", 4);
  expect_refused(both, "expected one of them");
  ModelRequest late_system = request_of(question);
  late_system.messages.push_back({"system", {{.text = "Be brief."}}});
  expect_refused(late_system, "system message must come first");
  ModelRequest broken = request_of(question);
  broken.media[0].bytes = std::make_shared<const std::string>(question.parts[1].substr(0, 60));
  const auto answer = served.get(broken);
  EXPECT_TRUE(answer->failed);
  EXPECT_EQ(answer->code, ErrorCode::kUnsupportedMedia) << answer->message;
}

TEST(Cosmos3Chat, ThinkingAndTheSystemPromptComeFromTheRequest) {
  Served served(kEdge);
  const auto ids_of = [&](const char* parameters) {
    ModelRequest request = request_of(Question{.parts = {"Hello"}, .parameters = parameters});
    return served.model().process_prompt(request).inputs.tensor("text_inputs").to_ints();
  };
  constexpr int64_t kThink = 12;
  constexpr int64_t kThought = 13;
  const auto thinking = ids_of("{}");
  EXPECT_EQ(thinking[thinking.size() - 2], kThink);
  EXPECT_NE(thinking.back(), kThought);
  for (const char* off :
       {R"({"enable_thinking":false})", R"({"chat_template_kwargs":{"enable_thinking":false}})"}) {
    const auto silent = ids_of(off);
    EXPECT_EQ(silent[silent.size() - 2], kThink);
    EXPECT_EQ(silent.back(), kThought);
  }
  EXPECT_GT(ids_of(R"({"system_prompt":"Be brief."})").size(), thinking.size() + 4);
}

TEST(Cosmos3Chat, OneTurnReasonsAndThenGenerates) {
  const SmallPictures checkpoint;
  Served served(checkpoint.folder());
  const std::string generation =
      R"("size":"64x48","num_inference_steps":2,"guidance_scale":2,"seed":5)";
  const std::string talk = R"({"temperature":0,"max_tokens":12,"ignore_eos":true,)";
  const Question question{.parts = {"Draw this again: ", picture(32, 48)},
                          .parameters = talk + generation + "}",
                          .outputs = {Modality::kText, Modality::kImage}};
  const auto both = served.get(question);
  ASSERT_FALSE(both->failed) << both->message;
  ASSERT_EQ(both->media.size(), 1U);
  EXPECT_FALSE(both->text.empty());
  // The text is the conversation's alone.
  Question talk_only = question;
  talk_only.outputs = {Modality::kText};
  EXPECT_EQ(served.get(talk_only)->text, both->text);
  // The picture is what the answer, as a prompt, makes.
  const auto drawn = served.get(Question{
      .parts = {both->text}, .parameters = "{" + generation + "}", .outputs = {Modality::kImage}});
  ASSERT_FALSE(drawn->failed) << drawn->message;
  EXPECT_EQ(drawn->media.at(0).data, both->media[0].data);
  // A video starts from the conversation's picture.
  Question clip = question;
  clip.parameters = talk + R"("num_frames":5,)" + generation + "}";
  clip.outputs = {Modality::kText, Modality::kVideo};
  const auto from_picture = served.get(clip);
  ASSERT_FALSE(from_picture->failed) << from_picture->message;
  EXPECT_EQ(from_picture->text, both->text);
  EXPECT_EQ(from_picture->media.at(0).metadata.at("num_frames").get_int(), 5);
}

TEST(Cosmos3Chat, ConversationsAndGenerationsDoNotChangeEachOther) {
  const SmallPictures checkpoint;
  Served served(checkpoint.folder());
  const Question talk{.parts = {"What is ", picture(40, 56), "?"},
                      .parameters = R"({"temperature":0,"max_tokens":24,"ignore_eos":true})"};
  const Question draw{
      .parts = {"a dog on the grass"},
      .parameters = R"({"size":"96x64","num_inference_steps":4,"seed":7,"guidance_scale":3})",
      .outputs = {Modality::kImage}};
  const std::string text = served.get(talk)->text;
  const auto drawn = served.get(draw);
  ASSERT_FALSE(drawn->failed) << drawn->message;
  std::vector<AnswerPtr> talks;
  std::vector<AnswerPtr> draws;
  for (int i = 0; i < 3; ++i) {
    talks.push_back(served.ask(talk));
    draws.push_back(served.ask(draw));
  }
  for (size_t i = 0; i < talks.size(); ++i) {
    talks[i]->wait();
    draws[i]->wait();
    ASSERT_FALSE(talks[i]->failed) << talks[i]->message;
    ASSERT_FALSE(draws[i]->failed) << draws[i]->message;
    EXPECT_EQ(talks[i]->text, text);
    EXPECT_EQ(draws[i]->media.at(0).data, drawn->media.at(0).data);
  }
}

TEST(Cosmos3Chat, AnEndTokenEndsTheAnswer) {
  Served served(kEdge);
  // The end token, made likelier than all others from the first or by and by.
  const auto ended = [&](const char* bias) {
    const auto answer = served.get(Question{
        .parts = {"Hello"},
        .parameters =
            R"({"temperature":0,"max_tokens":500,"logit_bias":{"11":)" + std::string(bias) + "}}"});
    EXPECT_FALSE(answer->failed) << answer->message;
    EXPECT_EQ(answer->completion.finish_reason, "stop") << bias;
    return answer->completion.num_generated_tokens;
  };
  EXPECT_EQ(ended("100"), 1);
  EXPECT_GT(ended("4"), 1);
}

TEST(Cosmos3Chat, SamplingFollowsTheSeed) {
  Served served(kEdge);
  const auto sampled = [&](int seed) {
    return served
        .get(Question{.parts = {"Tell me."},
                      .parameters = R"({"temperature":1.5,"max_tokens":12,"ignore_eos":true,)"
                                    R"("repetition_penalty":1.1,"seed":)" +
                                    std::to_string(seed) + "}"})
        ->text;
  };
  EXPECT_EQ(sampled(1), sampled(1));
  EXPECT_NE(sampled(1), sampled(2));
}

}  // namespace
}  // namespace mstar
