// Cosmos3 over HTTP: real checkpoints behind a server on a port of its own, files held against
// ffprobe.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "mstar/base/str_cat.h"
#include "mstar/base/text_file.h"
#include "mstar/media/image.h"
#include "mstar/models/registry.h"
#include "mstar/runtime/runtime.h"
#include "mstar/runtime/service.h"
#include "mstar/server/api.h"
#include "mstar/server/encoding.h"
#include "mstar/server/http/client.h"
#include "mstar/server/runtime_backend.h"

namespace mstar {
namespace {

namespace fs = std::filesystem;

std::string checkpoint(const std::string& name) {
  return MSTAR_SOURCE_DIR "/tests/golden/cosmos3/checkpoints/" + name;
}

std::string test_file(const std::string& name) {
  return read_text_file(std::string(MSTAR_SOURCE_DIR "/tests/media/") + name);
}

// A checkpoint being served.
class TestServer {
 public:
  explicit TestServer(const std::string& folder, const Json& model_kwargs = Json::object())
      : model_(open_model(folder, model_kwargs)),
        runtime_(*model_, Deployment{}, {.num_threads = 2}),
        service_(*model_, runtime_.conductor()),
        api_({}, Access({}, {})) {
    api_.context().set_backend(std::make_shared<RuntimeBackend>(
        *model_, runtime_, service_, RuntimeBackendOptions{.served_name = "cosmos3"}));
    http_.emplace(
        HttpServerOptions{.port = 0},
        [this](const HttpRequest& request) { return api_.guard(request); },
        [this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
          api_.handle(std::move(request), std::move(writer));
        });
    url_ = HttpUrl::parse(str_cat("http://127.0.0.1:", http_->port()));
  }

  ~TestServer() {
    runtime_.conductor().drain(std::chrono::milliseconds(0));
    http_.reset();
    api_.finish();
    api_.context().set_backend(nullptr);
  }

  HttpResponse get(const std::string& path) const { return http_call(url_, {.path = path}); }

  HttpResponse post(const std::string& path, const Json& body) const {
    return http_call(url_,
                     {.method = "POST",
                      .path = path,
                      .headers = {{"Content-Type", "application/json"}},
                      .body = body.dump()});
  }

  // Each part's name, and its file's name or "".
  struct Part {
    std::string name;
    std::string data;
    std::string file_name{};
  };

  HttpResponse post_form(const std::string& path, const std::vector<Part>& parts) const {
    std::string body;
    for (const Part& part : parts) {
      body += str_cat("--edge\r\nContent-Disposition: form-data; name=\"", part.name, "\"");
      body += part.file_name.empty() ? "" : str_cat("; filename=\"", part.file_name, "\"");
      body += str_cat("\r\n\r\n", part.data, "\r\n");
    }
    body += "--edge--\r\n";
    return http_call(url_,
                     {.method = "POST",
                      .path = path,
                      .headers = {{"Content-Type", "multipart/form-data; boundary=edge"}},
                      .body = body});
  }

  HttpResponse remove(const std::string& path) const {
    return http_call(url_, {.method = "DELETE", .path = path});
  }

  // A job's description once it is neither queued nor running.
  Json wait_for_job(const std::string& id, std::vector<int64_t>* progress = nullptr) const {
    while (true) {
      Json job = Json::parse(get("/v1/videos/" + id).body, "job");
      const std::string& status = job.at("status").get_string();
      if (progress != nullptr) {
        progress->push_back(job.at("progress").get_int());
      }
      if (status != "queued" && status != "in_progress") {
        return job;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  std::unique_ptr<Model> model_;
  Runtime runtime_;
  Service service_;
  Api api_;
  std::optional<HttpServer> http_;
  HttpUrl url_;
};

Json parsed(const HttpResponse& response, int status = 200) {
  EXPECT_EQ(response.status, status) << response.body.substr(0, 500);
  return Json::parse(response.body, "answer");
}

std::string file_of(const Json& document) {
  return decode_base64_lenient(document.at("data")[0].at("b64_json").get_string(), "b64_json");
}

// What ffprobe finds in a film.
struct Probe {
  int64_t num_frames = 0;
  std::string rate;
  double seconds = 0.0;
  int64_t width = 0;
  int64_t height = 0;
  double sound_seconds = 0.0;  // 0: no sound
};

Probe ffprobe(const std::string& bytes) {
  const fs::path path =
      fs::temp_directory_path() / ("mstar_cosmos3_http_" + std::to_string(::getpid()) + ".mp4");
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string command =
      "ffprobe -v error -count_frames -show_streams -of json " + path.string();
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), read);
  }
  EXPECT_EQ(::pclose(pipe), 0);
  fs::remove(path);
  Probe probe;
  const Json found = Json::parse(text, "ffprobe");
  for (const Json& stream : found.at("streams").get_array()) {
    const double seconds = std::stod(stream.at("duration").get_string());
    if (stream.at("codec_type").get_string() == "audio") {
      probe.sound_seconds = seconds;
      continue;
    }
    EXPECT_EQ(stream.at("codec_name").get_string(), "h264");
    EXPECT_EQ(stream.at("pix_fmt").get_string(), "yuv420p");
    probe.num_frames = std::stoll(stream.at("nb_read_frames").get_string());
    probe.rate = stream.at("avg_frame_rate").get_string();
    probe.seconds = seconds;
    probe.width = stream.at("width").get_int();
    probe.height = stream.at("height").get_int();
  }
  return probe;
}

void expect_small_film(const std::string& bytes, bool with_sound = false) {
  const Probe probe = ffprobe(bytes);
  EXPECT_EQ(probe.num_frames, 5);
  EXPECT_EQ(probe.rate, "8/1");
  EXPECT_NEAR(probe.seconds, 0.625, 2e-3);
  EXPECT_EQ(probe.width, 64);
  EXPECT_EQ(probe.height, 48);
  EXPECT_NEAR(probe.sound_seconds, with_sound ? 0.625 : 0.0, 5e-3);
}

const char* const kVideo =
    R"({"prompt":"a dog","size":"64x48","num_frames":5,"fps":8,"num_inference_steps":2,"seed":3})";

Json video_body(const std::vector<std::pair<std::string, Json>>& more = {}) {
  Json body = Json::parse(kVideo, "body");
  for (const auto& [name, value] : more) {
    body.set(name, value);
  }
  return body;
}

std::string data_uri(const std::string& type, const std::string& name) {
  return str_cat("data:", type, ";base64,", encode_base64(test_file(name)));
}

TEST(Cosmos3Http, ImagesOfTheAskedSizeAndFormat) {
  const TestServer server(checkpoint("nano"));
  Json body = Json::parse(
      R"({"prompt":"a cat","size":"96x64","num_inference_steps":2,"seed":7,"n":2})", "body");
  const Json png = parsed(server.post("/v1/images/generations", body));
  EXPECT_EQ(png.at("size").get_string(), "96x64");
  ASSERT_EQ(png.at("data").size(), 2U);
  EXPECT_NE(png.at("data")[0].dump(), png.at("data")[1].dump());
  EXPECT_EQ(decode_image(file_of(png)).shape(), (Shape{64, 96, 3}));
  // Image i of n has the seed seed + i.
  body.set("n", 1);
  body.set("seed", 8);
  const Json second = parsed(server.post("/v1/images/generations", body));
  EXPECT_EQ(second.at("data")[0].dump(), png.at("data")[1].dump());
  body.set("output_format", "jpeg");
  const Json jpeg = parsed(server.post("/v1/images/generations", body));
  EXPECT_EQ(jpeg.at("output_format").get_string(), "jpeg");
  EXPECT_EQ(read_image_info(file_of(jpeg)).format, ImageFormat::kJpeg);
  body.set("output_format", "tiff");
  parsed(server.post("/v1/images/generations", body), 400);
}

TEST(Cosmos3Http, ImagesAreNotEdited) {
  const TestServer server(checkpoint("nano"));
  const HttpResponse answer = server.post_form(
      "/v1/images/edits",
      {{"prompt", "red"}, {"image", test_file("rgb.png"), "a.png"}, {"seed", "7"}});
  const Json error = parsed(answer, 400);
  EXPECT_NE(error.at("error").at("message").get_string().find("edits none"), std::string::npos);
}

TEST(Cosmos3Http, ProgressEventsOfAnImage) {
  const TestServer server(checkpoint("nano"));
  const HttpResponse answer = server.post(
      "/v1/images/generations",
      Json::parse(R"({"prompt":"a cat","size":"96x64","num_inference_steps":3,"stream":true})",
                  "body"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find(R"("type":"image_generation.progress")"), std::string::npos);
  EXPECT_NE(answer.body.find(R"("step":3,"num_steps":3)"), std::string::npos);
  EXPECT_NE(answer.body.find(R"("type":"image_generation.completed")"), std::string::npos);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST(Cosmos3Http, VideosInEveryWay) {
  const TestServer server(checkpoint("nano"));
  const std::string film = file_of(parsed(server.post("/v1/videos/generations", video_body())));
  expect_small_film(film);
  const HttpResponse sync = server.post("/v1/videos/sync", video_body());
  EXPECT_EQ(*sync.headers.find("Content-Type"), "video/mp4");
  EXPECT_EQ(sync.body, film);
  // From an image, from a film, both as JSON and as a form.
  const std::string from_image = file_of(parsed(server.post(
      "/v1/videos/generations", video_body({{"image", data_uri("image/webp", "turned6.webp")}}))));
  expect_small_film(from_image);
  EXPECT_NE(from_image, film);
  const HttpResponse form =
      server.post_form("/v1/videos/sync",
                       {{"prompt", "a dog"},
                        {"size", "64x48"},
                        {"num_frames", "5"},
                        {"fps", "8"},
                        {"num_inference_steps", "2"},
                        {"seed", "3"},
                        {"input_reference", test_file("turned6.webp"), "a.webp"}});
  EXPECT_EQ(form.status, 200) << form.body.substr(0, 300);
  EXPECT_EQ(form.body, from_image);
  const std::string from_film = file_of(parsed(server.post(
      "/v1/videos/generations", video_body({{"video", data_uri("video/webm", "film.webm")}}))));
  expect_small_film(from_film);
  EXPECT_NE(from_film, from_image);
  const Json both = parsed(server.post("/v1/videos/generations",
                                       video_body({{"image", data_uri("image/png", "rgb.png")},
                                                   {"video", data_uri("video/mp4", "film.mp4")}})),
                           400);
  EXPECT_NE(both.at("error").at("message").get_string().find("several"), std::string::npos);
}

TEST(Cosmos3Http, VideosWithSound) {
  const TestServer nano(checkpoint("nano"));
  expect_small_film(nano.post("/v1/videos/sync", video_body({{"generate_sound", true}})).body,
                    true);
  const TestServer edge(checkpoint("edge"));
  const Json error =
      parsed(edge.post("/v1/videos/sync", video_body({{"generate_sound", true}})), 400);
  EXPECT_EQ(error.at("error").at("param").get_string(), "generate_sound");
  EXPECT_NE(error.at("error").at("message").get_string().find("no sound heads"), std::string::npos);
}

TEST(Cosmos3Http, AJobFromStartToEnd) {
  const TestServer server(checkpoint("nano"));
  const Json started = parsed(server.post("/v1/videos", video_body({{"num_inference_steps", 20}})));
  const std::string id = started.at("id").get_string();
  EXPECT_EQ(started.at("object").get_string(), "video");
  std::vector<int64_t> progress;
  const Json ended = server.wait_for_job(id, &progress);
  EXPECT_EQ(ended.at("status").get_string(), "completed") << ended.dump();
  EXPECT_EQ(ended.at("progress").get_int(), 100);
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  const HttpResponse content = server.get("/v1/videos/" + id + "/content");
  EXPECT_EQ(*content.headers.find("Content-Type"), "video/mp4");
  expect_small_film(content.body);
  parsed(server.remove("/v1/videos/" + id));
  EXPECT_EQ(server.get("/v1/videos/" + id).status, 404);
}

TEST(Cosmos3Http, ACancelledJobStopsAndGivesEverythingBack) {
  const TestServer server(checkpoint("nano"));
  const Json started = parsed(server.post(
      "/v1/videos",
      video_body({{"size", "256x256"}, {"num_frames", 61}, {"num_inference_steps", 100}})));
  const std::string id = started.at("id").get_string();
  while (parsed(server.get("/v1/videos/" + id)).at("progress").get_int() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const Json cancelled = parsed(server.remove("/v1/videos/" + id));
  EXPECT_EQ(cancelled.at("status").get_string(), "cancelled");
  EXPECT_EQ(server.get("/v1/videos/" + id + "/content").status, 400);
  // The next one is served, and then nothing is held: right behind its answer it is taken apart.
  EXPECT_EQ(server.post("/v1/videos/sync", video_body()).status, 200);
  std::string metrics;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do {
    metrics = server.get("/metrics").body;
  } while (metrics.find("mstar_worker_requests{worker=\"0\"} 0\n") == std::string::npos &&
           std::chrono::steady_clock::now() < deadline);
  EXPECT_NE(metrics.find("mstar_worker_live_tensors{worker=\"0\"} 0\n"), std::string::npos);
  EXPECT_NE(metrics.find("mstar_worker_requests{worker=\"0\"} 0\n"), std::string::npos);
}

TEST(Cosmos3Http, OneSeedOneFilmInAnyCompany) {
  const TestServer server(checkpoint("nano"));
  const std::string alone = server.post("/v1/videos/sync", video_body()).body;
  std::vector<std::thread> others;
  for (int i = 0; i < 7; ++i) {
    others.emplace_back([&server, i] {
      const Json body = video_body({{"size", str_cat(32 + 16 * i, "x", 32 + 16 * (i % 3))},
                                    {"num_frames", 1 + 4 * (i % 3)},
                                    {"num_inference_steps", 2 + i % 4},
                                    {"guidance_scale", i % 2 == 0 ? 1.0 : 5.0}});
      EXPECT_EQ(server.post("/v1/videos/sync", body).status, 200);
    });
  }
  const std::string among = server.post("/v1/videos/sync", video_body()).body;
  for (std::thread& other : others) {
    other.join();
  }
  EXPECT_EQ(among, alone);
}

TEST(Cosmos3Http, GenerateKnowsEveryModality) {
  const TestServer server(checkpoint("nano"));
  const auto generate =
      [&](const std::string& outputs, const std::string& kwargs, const std::string& file) {
        std::vector<TestServer::Part> parts = {{"text", "a robot"},
                                               {"output_modalities", outputs},
                                               {"streaming", "false"},
                                               {"model_kwargs", kwargs}};
        if (!file.empty()) {
          parts.push_back({"files", test_file(file), file});
        }
        return parsed(server.post_form("/generate", parts)).at("outputs");
      };
  const auto data = [](const Json& outputs, const char* modality) {
    return decode_base64_lenient(outputs.at(modality)[0].at("data").get_string(), modality);
  };
  const char* const size = R"({"size":"64x48","num_inference_steps":1})";
  EXPECT_EQ(decode_image(data(generate("image", size, ""), "image")).shape(), (Shape{48, 64, 3}));
  const std::string video =
      R"({"size":"64x48","num_inference_steps":1,"num_frames":5,"fps":8,"generate_sound":true})";
  const Json with_sound = generate("video,audio", video, "film.mp4");
  expect_small_film(data(with_sound, "video"), true);
  EXPECT_EQ(with_sound.at("audio")[0].at("metadata").at("num_channels").get_int(), 2);
  const std::string actions =
      R"("size":"64x48","num_inference_steps":1,"action_chunk_size":4,"domain_name":"av")";
  const Json policy = generate(
      "action", "{" + actions + R"(,"action_mode":"policy","raw_action_dim":9})", "rgb.jpg");
  const Json& shape = policy.at("action")[0].at("metadata").at("shape");
  EXPECT_EQ(shape.dump(), "[4,12]");
  EXPECT_EQ(data(policy, "action").size(), 4U * 12 * 4);
  const Json inverse =
      generate("action",
               "{" + actions + R"(,"action_mode":"inverse_dynamics","raw_action_dim":9})",
               "film.mkv");
  EXPECT_EQ(data(inverse, "action").size(), 4U * 12 * 4);
  const Json forward =
      generate("video",
               "{" + actions + R"(,"action_mode":"forward_dynamics","fps":8,"action":[[0.1,0.2]]})",
               "rgb.png");
  expect_small_film(data(forward, "video"));
}

TEST(Cosmos3Http, GenerateStreamsStepsWhenAsked) {
  const TestServer server(checkpoint("nano"));
  const HttpResponse answer =
      server.post_form("/generate",
                       {{"text", "a robot"},
                        {"output_modalities", "image"},
                        {"progress", "true"},
                        {"model_kwargs", R"({"size":"64x48","num_inference_steps":2})"}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find(R"({"modality":"progress")"), std::string::npos);
  EXPECT_NE(answer.body.find(R"({"modality":"image")"), std::string::npos);
}

// What is sent and what is asked for, each with the flag that says how much is too much.
TEST(Cosmos3Http, MediaOverTheServersCapsAreRefused) {
  const TestServer server(
      checkpoint("nano"),
      Json::parse(R"({"max_image_pixels":3072,"max_video_frames":5,"max_video_bytes":1048576})",
                  "kwargs"));
  EXPECT_EQ(server.post("/v1/videos/sync", video_body()).status, 200);  // 64x48, 5 frames
  const auto expect_refused = [&](const Json& body, const char* flag) {
    const HttpResponse answer = server.post("/v1/videos/sync", body);
    EXPECT_EQ(answer.status, 413) << answer.body;
    EXPECT_NE(answer.body.find(flag), std::string::npos) << answer.body;
  };
  expect_refused(video_body({{"size", "64x64"}}), "--max-image-pixels is 3072");
  expect_refused(video_body({{"num_frames", 9}}), "--max-video-frames is 5");
  Tensor large = Tensor::zeros({64, 64, 3}, DType::kU8);
  const std::string png = "data:image/png;base64," + encode_base64(encode_png(large));
  expect_refused(video_body({{"image", png}}), "--max-image-pixels is 3072");
  expect_refused(video_body({{"video", data_uri("video/mp4", "film.mp4")}}), "--max-");
  const std::string long_file = test_file("film.mp4") + std::string(std::size_t{1100000}, '\0');
  expect_refused(video_body({{"video", "data:video/mp4;base64," + encode_base64(long_file)}}),
                 "--max-video-mb is 1");
  const HttpResponse image = server.post(
      "/v1/images/generations", Json::parse(R"({"prompt":"a cat","size":"64x64"})", "body"));
  EXPECT_EQ(image.status, 413) << image.body;
}

TEST(Cosmos3Http, BrokenMediaAreTheClientsFault) {
  const TestServer server(checkpoint("nano"));
  const std::string cut = encode_base64(test_file("rgb.png").substr(0, 60));
  const HttpResponse image =
      server.post("/v1/videos/sync", video_body({{"image", "data:image/png;base64," + cut}}));
  EXPECT_EQ(image.status, 415) << image.body;
  const std::string half = encode_base64(test_file("film.mp4").substr(0, 700));
  const HttpResponse film =
      server.post("/v1/videos/sync", video_body({{"video", "data:video/mp4;base64," + half}}));
  EXPECT_EQ(film.status, 415) << film.body;
}

// ---- conversations

Json part(const std::string& type, const std::string& value) {
  if (type == "text") {
    return Json::object({{"type", type}, {"text", value}});
  }
  return Json::object({{"type", type}, {type, Json::object({{"url", value}})}});
}

Json chat_body(std::vector<Json> parts,
               const std::vector<std::pair<std::string, Json>>& more = {}) {
  Json body = Json::parse(R"({"temperature":0,"repetition_penalty":2,"max_tokens":8})", "body");
  body.set("ignore_eos", true);
  body.set("messages",
           Json(Json::Array{Json::object(
               {{"role", "user"}, {"content", Json(Json::Array(std::move(parts)))}})}));
  for (const auto& [name, value] : more) {
    body.set(name, value);
  }
  return body;
}

constexpr const char* kChat = "/v1/chat/completions";

std::string words_of(const Json& document) {
  return document.at("choices")[0].at("message").at("content").get_string();
}

TEST(Cosmos3Http, ChatLooksAtPicturesAndFilms) {
  const TestServer server(checkpoint("edge"));
  const std::vector<Json> parts = {part("text", "Compare "),
                                   part("image_url", data_uri("image/png", "rgb.png")),
                                   part("image_url", data_uri("image/jpeg", "rgb.jpg")),
                                   part("text", " with "),
                                   part("video_url", data_uri("video/mp4", "film.mp4"))};
  const Json whole = parsed(server.post(kChat, chat_body(parts)));
  const std::string words = words_of(whole);
  EXPECT_FALSE(words.empty());
  // Two pictures of 1024 tokens each, and the frames.
  const int64_t num_prompt = whole.at("usage").at("prompt_tokens").get_int();
  EXPECT_GT(num_prompt, 2 * 1024 + 16);
  EXPECT_EQ(whole.at("usage").at("completion_tokens").get_int(), 8);
  EXPECT_EQ(whole.at("choices")[0].at("finish_reason").get_string(), "length");

  // The same as a stream.
  const HttpResponse stream = server.post(
      kChat,
      chat_body(parts,
                {{"stream", true}, {"stream_options", Json::object({{"include_usage", true}})}}));
  EXPECT_EQ(stream.status, 200);
  std::string streamed;
  int64_t streamed_prompt = 0;
  int num_pieces = 0;
  for (size_t at = stream.body.find("data: {"); at != std::string::npos;
       at = stream.body.find("data: {", at + 1)) {
    const size_t end = stream.body.find("\n\n", at);
    const Json event = Json::parse(stream.body.substr(at + 6, end - at - 6), "event");
    if (event.at("choices").size() > 0) {
      const Json* content = event.at("choices")[0].at("delta").find("content");
      streamed += content != nullptr ? content->get_string() : "";
      num_pieces += content != nullptr ? 1 : 0;
    } else {
      streamed_prompt = event.at("usage").at("prompt_tokens").get_int();
    }
  }
  EXPECT_EQ(streamed, words);
  EXPECT_GT(num_pieces, 2);
  EXPECT_EQ(streamed_prompt, num_prompt);

  // Fewer frames, and no thinking.
  const Json fewer = parsed(server.post(
      kChat,
      chat_body(parts,
                {{"video_num_frames", 1},
                 {"chat_template_kwargs", Json::object({{"enable_thinking", false}})}})));
  EXPECT_LT(fewer.at("usage").at("prompt_tokens").get_int(), num_prompt);
}

TEST(Cosmos3Http, AChatTurnAnswersAndDraws) {
  const TestServer server(checkpoint("edge"));
  const Json answer = parsed(server.post(
      kChat,
      chat_body({part("image_url", data_uri("image/png", "rgb.png")), part("text", "Another one")},
                {{"modalities", Json(Json::Array{"text", "image"})},
                 {"size", "64x48"},
                 {"num_inference_steps", 2}})));
  const Json& content = answer.at("choices")[0].at("message").at("content");
  std::string words;
  int num_pictures = 0;
  for (const Json& one : content.get_array()) {
    if (one.at("type").get_string() == "text") {
      words = one.at("text").get_string();
      continue;
    }
    const std::string& url = one.at("image_url").at("url").get_string();
    const std::string bytes = decode_base64_lenient(url.substr(url.find(',') + 1), "url");
    EXPECT_EQ(decode_image(bytes).shape(), (Shape{48, 64, 3}));
    ++num_pictures;
  }
  EXPECT_FALSE(words.empty());
  EXPECT_EQ(num_pictures, 1);
  EXPECT_GT(answer.at("usage").at("prompt_tokens").get_int(), 1024);
}

TEST(Cosmos3Http, GenerateTalksAboutFiles) {
  const TestServer server(checkpoint("edge"));
  const auto ask = [&](const std::string& order) {
    return server.post_form(
        "/generate",
        {{"text", "What do you see?"},
         {"files", test_file("rgb.png"), "rgb.png"},
         {"files", test_file("film.mp4"), "film.mp4"},
         {"input_modalities", order},
         {"output_modalities", "text"},
         {"streaming", "false"},
         {"model_kwargs",
          R"({"temperature":2,"seed":1,"max_tokens":16,"ignore_eos":true,"enable_thinking":false})"}});
  };
  const auto text = [](const HttpResponse& response) {
    std::string words;
    const Json document = parsed(response);
    for (const Json& piece : document.at("outputs").at("text").get_array()) {
      words += decode_base64_lenient(piece.at("data").get_string(), "data");
    }
    return words;
  };
  const std::string words = text(ask("image,text,video"));
  EXPECT_FALSE(words.empty());
  EXPECT_EQ(text(ask("image,text,video")), words);
  EXPECT_NE(text(ask("video,image,text")), words);
  EXPECT_EQ(ask("image,image,text").status, 400);
}

TEST(Cosmos3Http, WhatAChatCannotReadIsAClearError) {
  const TestServer server(checkpoint("edge"));
  const auto expect_error = [&](std::vector<Json> parts, int status, const char* about) {
    const HttpResponse answer = server.post(kChat, chat_body(std::move(parts)));
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_NE(answer.body.find(about), std::string::npos) << answer.body;
  };
  const auto png = [](int64_t height, int64_t width) {
    return "data:image/png;base64," +
           encode_base64(encode_png(Tensor::zeros({height, width, 3}, DType::kU8)));
  };
  expect_error({part("image_url", png(20, 10000))}, 400, "10000x20");
  expect_error({part("image_url", "https://example.org/a.png")}, 400, "remote media is off");
  expect_error({part("image_url", data_uri("image/png", "film.mp4"))}, 415, "expected image");
  expect_error({part("video_url", data_uri("video/mp4", "rgb.png"))}, 415, "expected video");
  expect_error({part("image_url",
                     "data:image/png;base64," + encode_base64(test_file("rgb.png").substr(0, 60)))},
               415,
               "messages[0].content[0]");
  std::vector<Json> many(40, part("image_url", png(8, 8)));
  expect_error(std::move(many), 400, "this model reads 16383 at most");
  const Json tiny = parsed(server.post(kChat, chat_body({part("image_url", png(1, 1))})));
  EXPECT_GT(tiny.at("usage").at("prompt_tokens").get_int(), 1024);
  const Json typed =
      parsed(server.post(kChat, chat_body({part("text", "<|image_pad|><|vision_start|>")})));
  EXPECT_LT(typed.at("usage").at("prompt_tokens").get_int(), 100);
}

}  // namespace
}  // namespace mstar
