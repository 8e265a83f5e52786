// A language model with a vocabulary as SentencePiece makes them, over HTTP: where the text of a
// prompt ends and that of its answer begins.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "mstar/base/str_cat.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"
#include "mstar/server/api.h"
#include "mstar/server/http/client.h"
#include "mstar/server/runtime_backend.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

constexpr int kVocabSize = 320;
constexpr int kBeginToken = 1;

// A letter for each number, so that no token's text is the beginning of another's.
std::string word(int id) {
  std::string text;
  for (const char digit : std::to_string(id)) {
    text += static_cast<char>('a' + (digit - '0'));
  }
  return text + ".";
}

// Words with a space before them, but every third without; "<s>" is put before a text.
std::string tokenizer_json() {
  std::vector<std::string> entries = {R"("<unk>":0)", R"("<s>":1)", R"("</s>":2)"};
  for (int id = 3; id < kVocabSize; ++id) {
    entries.push_back(str_cat("\"", id % 3 == 0 ? "" : "\u2581", word(id), "\":", id));
  }
  return str_cat(
      R"({"version":"1.0","added_tokens":[)"
      R"({"id":1,"content":"<s>","special":true,"normalized":false,"single_word":false,)"
      R"("lstrip":false,"rstrip":false}],"normalizer":null,)"
      R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always",)"
      R"("split":true},"post_processor":{"type":"TemplateProcessing",)"
      R"("single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)"
      R"("pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
      R"("special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}},)"
      R"("decoder":{"type":"Sequence","decoders":[)"
      R"({"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},)"
      R"({"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},)"
      R"("model":{"type":"WordLevel","unk_token":"<unk>","vocab":{)",
      str_join(entries, ","),
      "}}}");
}

class CompletionsHttpTest : public ::testing::Test {
 protected:
  CompletionsHttpTest() : api_({}, Access({}, {})) {
    folder_ = fs::path(::testing::TempDir()) / str_cat("mstar_completions_", getpid());
    fs::create_directories(folder_);
    const fs::path source = MSTAR_SOURCE_DIR "/tests/golden/lm/checkpoints/llama_untied";
    for (const auto& entry : fs::directory_iterator(source)) {
      fs::create_symlink(entry.path(), folder_ / entry.path().filename());
    }
    std::ofstream(folder_ / "tokenizer.json") << tokenizer_json();
    model_ = open_model(folder_.string(), Json::object());
    runtime_.emplace(*model_, Deployment{}, RuntimeOptions{.num_threads = 2});
    service_.emplace(*model_, runtime_->conductor(), ServiceOptions{});
    api_.context().set_backend(std::make_shared<RuntimeBackend>(
        *model_, *runtime_, *service_, RuntimeBackendOptions{.served_name = "words"}));
    http_.emplace(
        HttpServerOptions{.port = 0},
        [this](const HttpRequest& request) { return api_.guard(request); },
        [this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
          api_.handle(std::move(request), std::move(writer));
        });
    url_ = HttpUrl::parse(str_cat("http://127.0.0.1:", http_->port()));
  }

  ~CompletionsHttpTest() override {
    runtime_->conductor().drain(std::chrono::milliseconds(0));
    http_.reset();
    api_.finish();
    api_.context().set_backend(nullptr);
    service_.reset();
    runtime_.reset();
    model_.reset();
    fs::remove_all(folder_);
  }

  std::string post(const std::string& path, const std::string& body) const {
    const HttpResponse response = http_call(url_,
                                            {.method = "POST",
                                             .path = path,
                                             .headers = {{"Content-Type", "application/json"}},
                                             .body = body});
    EXPECT_EQ(response.status, 200) << response.body;
    return response.body;
  }

  // One prompt (as JSON) gone on with; `more` are further fields of the request.
  Json complete(const std::string& prompt, const std::string& more = "") const {
    return Json::parse(post("/v1/completions", body(prompt, more))).at("choices")[0];
  }

  // The same streamed: text, and the offsets that came with it.
  struct Streamed {
    std::string text;
    Json offsets = Json::array();
  };

  Streamed stream(const std::string& prompt, const std::string& more = "") const {
    Streamed out;
    const std::string events = post("/v1/completions", body(prompt, more + R"(,"stream":true)"));
    for (size_t at = events.find("data: {"); at != std::string::npos;
         at = events.find("data: {", at + 1)) {
      const Json event = Json::parse(events.substr(at + 6, events.find('\n', at) - at - 6));
      const Json& choice = event.at("choices")[0];
      out.text += choice.at("text").get_string();
      if (const Json& logprobs = choice.at("logprobs"); !logprobs.is_null()) {
        for (const Json& offset : logprobs.at("text_offset").get_array()) {
          out.offsets.push_back(offset);
        }
      }
    }
    return out;
  }

  // The text of prompt and answer in one, as the reference's decoder has it.
  std::string whole_text(const std::vector<int64_t>& prompt, const Json& tokens) const {
    std::vector<int32_t> ids(prompt.begin(), prompt.end());
    for (const Json& token : tokens.get_array()) {
      const std::string& text = token.get_string();
      const bool spaced = text.starts_with(" ");
      for (int id = 3; id < kVocabSize; ++id) {
        if ((id % 3 != 0) == spaced && word(id) == text.substr(spaced ? 1 : 0)) {
          ids.push_back(id);
        }
      }
    }
    return model_->prompt_text(ids);
  }

 private:
  static std::string body(const std::string& prompt, const std::string& more) {
    return str_cat(
        "{\"prompt\":", prompt, R"(,"max_tokens":12,"temperature":0,"ignore_eos":true)", more, "}");
  }

  fs::path folder_;
  std::unique_ptr<Model> model_;
  std::optional<Runtime> runtime_;
  std::optional<Service> service_;
  Api api_;
  std::optional<HttpServer> http_;
  HttpUrl url_;
};

TEST_F(CompletionsHttpTest, AnAnswerKeepsTheSpaceBeforeItsFirstWord) {
  int num_spaced = 0;
  int num_hidden = 0;
  for (int id = 10; id < 26; ++id) {
    const std::string text = str_cat("\"", word(id + (id % 3 == 0 ? 1 : 0)), "\"");
    const Json choice = complete(text, R"(,"logprobs":0)");
    const Json& tokens = choice.at("logprobs").at("tokens");
    const std::string& answer = choice.at("text").get_string();
    std::string joined;
    Json offsets = Json::array();
    for (const Json& token : tokens.get_array()) {
      offsets.push_back(static_cast<int64_t>(joined.size()));
      const bool is_shown = token.get_string() != "<s>";  // the text leaves special tokens out
      joined += is_shown ? token.get_string() : "";
      num_hidden += is_shown ? 0 : 1;
    }
    EXPECT_EQ(joined, answer);
    EXPECT_EQ(choice.at("logprobs").at("text_offset"), offsets);
    num_spaced += answer.starts_with(" ") ? 1 : 0;

    const Streamed streamed = stream(text, R"(,"logprobs":0)");
    EXPECT_EQ(streamed.text, answer);
    EXPECT_EQ(streamed.offsets, offsets);
  }
  EXPECT_GT(num_spaced, 2);
  EXPECT_LT(num_spaced, 16);
  EXPECT_GT(num_hidden, 0);
}

TEST_F(CompletionsHttpTest, AnEchoAndItsAnswerAreTheTextOfBoth) {
  for (const int first : {100, 200, 310}) {
    const std::string words = str_cat(word(first), " ", word(first + 3), word(150));
    const std::vector<int64_t> ids = {kBeginToken, first, first + 3, 150};
    const std::string as_ids = str_cat("[", str_join(ids, ","), "]");
    const Json plain = complete(as_ids, R"(,"logprobs":0)");
    const std::string whole = whole_text(ids, plain.at("logprobs").at("tokens"));
    EXPECT_TRUE(whole.starts_with(words)) << whole;

    EXPECT_EQ(words + plain.at("text").get_string(), whole);
    EXPECT_EQ(complete(as_ids, R"(,"echo":true)").at("text").get_string(), whole);
    EXPECT_EQ(stream(as_ids, R"(,"echo":true)").text, whole);
    // The begin token alone shows nothing, and what follows begins the text.
    const Json alone = complete(str_cat("[", kBeginToken, "]"), R"(,"echo":true)");
    EXPECT_FALSE(alone.at("text").get_string().starts_with(" "));
  }
  const std::string text = str_cat(word(100), " ", word(103));
  const std::string answer = complete(str_cat("\"", text, "\"")).at("text").get_string();
  EXPECT_EQ(complete(str_cat("\"", text, "\""), R"(,"echo":true)").at("text").get_string(),
            text + answer);
}

}  // namespace
}  // namespace mstar
