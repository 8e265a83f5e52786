#include "mstar/cli/run_output.h"

#include <cstring>
#include <fstream>
#include <utility>

#include "mstar/base/error.h"
#include "mstar/base/str_cat.h"
#include "mstar/media/audio.h"
#include "mstar/media/image.h"
#include "mstar/server/http/message.h"

namespace mstar {

namespace {

std::string lower_extension(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : lower_ascii(std::string_view(path).substr(dot + 1));
}

// Rows of actions as JSON: [[…], …].
std::string action_rows(const RunResult& result) {
  const int64_t columns = result.metadata.at("shape")[1].get_int();
  Json rows = Json::array();
  Json row = Json::array();
  for (size_t offset = 0; offset + sizeof(float) <= result.media.size(); offset += sizeof(float)) {
    float value = 0.0F;
    std::memcpy(&value, result.media.data() + offset, sizeof(value));
    row.push_back(static_cast<double>(value));
    if (static_cast<int64_t>(row.size()) == columns) {
      rows.push_back(std::exchange(row, Json::array()));
    }
  }
  return rows.dump() + "\n";
}

std::string sound_file(const RunResult& result, const std::string& extension) {
  const Json* rate = result.metadata.find("sample_rate");
  const Json* channels = result.metadata.find("num_channels");
  const std::string word = extension == "ogg" ? "opus" : extension;
  return write_audio(from_pcm16(result.media,
                                rate != nullptr ? rate->get_int() : 24000,
                                channels != nullptr ? channels->get_int() : 1),
                     parse_audio_format(word).value_or(AudioFormat::kWav));
}

// The answer in the format that the file's name asks for.
std::string file_bytes(const std::string& path, const RunResult& result, Modality modality) {
  const std::string extension = lower_extension(path);
  switch (modality) {
    case Modality::kText: return result.text;
    case Modality::kAudio: return sound_file(result, extension);
    case Modality::kImage:
      return extension == "jpg" || extension == "jpeg" ? encode_jpeg(decode_image(result.media))
                                                       : result.media;
    case Modality::kAction: return extension == "json" ? action_rows(result) : result.media;
    default: return result.media;
  }
}

}  // namespace

std::string default_out(Modality modality) {
  switch (modality) {
    case Modality::kImage: return "output.png";
    case Modality::kVideo: return "output.mp4";
    case Modality::kAudio: return "output.wav";
    case Modality::kAction: return "output.f32";
    default: return "";
  }
}

void write_file(const std::string& path, const RunResult& result, Modality modality) {
  const std::string bytes = file_bytes(path, result, modality);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    throw Error(ErrorCode::kUnavailable, str_cat("[run] cannot write \"", path, "\""));
  }
}

Json result_json(const RunResult& result, const std::string& path) {
  const Completion& completion = result.completion;
  Json out = Json::object({{"text", result.text},
                           {"finish_reason", completion.finish_reason},
                           {"num_prompt_tokens", completion.num_prompt_tokens},
                           {"num_generated_tokens", completion.num_generated_tokens},
                           {"first_chunk_seconds", result.first_chunk_seconds},
                           {"seconds", result.seconds}});
  if (!path.empty()) {
    out.set("out", path);
  }
  if (result.metadata.size() > 0) {
    out.set("metadata", result.metadata);
  }
  return out;
}

}  // namespace mstar
