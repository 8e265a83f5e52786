#include "mstar/engine/parameters.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"

namespace mstar {
namespace {

ParameterTable table() {
  return ParameterTable({
      {.name = "num_frames", .fallback = 1, .min = 1, .max = 400, .unit = "frames"},
      {.name = "guidance_scale",
       .type = RequestParameter::Type::kFloat,
       .fallback = 6.0,
       .min = 0.0},
      {.name = "window_mode",
       .type = RequestParameter::Type::kString,
       .choices = {"chained", "kv"}},
      {.name = "generate_sound",
       .type = RequestParameter::Type::kBool,
       .fallback = false,
       .aliases = {"sound_gen"}},
      {.name = "indexes", .type = RequestParameter::Type::kIntList, .min = 0},
  });
}

std::string error_of(const std::string& json) {
  try {
    table().resolve(Json::parse(json));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParameterTable, FillsDefaultsAndTakesAliases) {
  const Json out = table().resolve(Json::parse(R"({"sound_gen":true,"num_frames":5.0})"));
  EXPECT_EQ(out.at("generate_sound"), Json(true));
  EXPECT_EQ(out.at("num_frames").get_int(), 5);
  EXPECT_EQ(out.at("guidance_scale"), Json(6.0));
  EXPECT_FALSE(out.contains("window_mode"));
}

TEST(ParameterTable, NullMeansAbsent) {
  EXPECT_EQ(table().resolve(Json::parse(R"({"num_frames":null})")).at("num_frames"), Json(1));
}

TEST(ParameterTable, RefusesWithNameFoundAndExpected) {
  EXPECT_EQ(error_of(R"({"num_frames":0})"),
            "[request] \"num_frames\": found 0, expected 1 to 400");
  EXPECT_EQ(error_of(R"({"num_frames":"x"})"),
            "[request] \"num_frames\": found string, expected an integer");
  EXPECT_EQ(error_of(R"({"num_frames":1.5})"),
            "[request] \"num_frames\": found 1.5, expected an integer");
  EXPECT_NE(error_of(R"({"num_frame":2})").find("did you mean \"num_frames\"?"), std::string::npos);
  EXPECT_NE(error_of(R"({"window_mode":"x"})").find("one of chained, kv"), std::string::npos);
  EXPECT_NE(error_of(R"({"sound_gen":true,"generate_sound":true})").find("twice"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"indexes":[1,-1]})").find("-1"), std::string::npos);
}

TEST(ParameterTable, ReadsCommandLineText) {
  const ParameterTable parameters = table();
  EXPECT_EQ(parse_parameter(*parameters.find("indexes"), "0,1").dump(), "[0,1]");
  EXPECT_EQ(parse_parameter(*parameters.find("sound_gen"), ""), Json(true));
  EXPECT_EQ(parse_parameter(*parameters.find("window_mode"), "kv"), Json("kv"));
  EXPECT_THROW(parse_parameter(*parameters.find("num_frames"), "many"), Error);
}

}  // namespace
}  // namespace mstar
