#include "mstar/base/json.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"

namespace mstar {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Json, KeepsIntegersAndKeyOrder) {
  const std::string text = R"({"z":18446744073709551615,"a":-5,"m":[1,2.5,true,null,"x"]})";
  const Json json = Json::parse(text);
  EXPECT_EQ(json.at("z").get_uint(), 18446744073709551615ULL);
  EXPECT_EQ(json.at("a").get_int(), -5);
  EXPECT_EQ(json.dump(), text);
}

TEST(Json, RefusesWhatIsNotOneDocument) {
  EXPECT_THROW(Json::parse("{} {}"), Error);
  EXPECT_THROW(Json::parse("{\"a\":}"), Error);
  EXPECT_THROW(Json::parse(""), Error);
  EXPECT_NE(message_of([] { Json::parse("{\"a\":1,\"a\":2}", "f"); }).find("twice"),
            std::string::npos);
  EXPECT_NE(message_of([] { Json::parse(std::string(1000, '['), "f"); }).find("deeper"),
            std::string::npos);
}

TEST(Json, NumbersCompareByValue) {
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_EQ(Json::parse("3.0").get_int(), 3);
  EXPECT_THROW(Json::parse("3.5").get_int(), Error);
  EXPECT_THROW(Json(-1).get_uint(), Error);
}

TEST(Json, SetReplacesAndAppends) {
  Json json;
  json.set("a", 1).set("b", "x").set("a", 2);
  EXPECT_EQ(json.dump(), R"({"a":2,"b":"x"})");
}

TEST(JsonReader, NamesMissingWrongAndUnknownKeys) {
  const Json json = Json::parse(R"({"hidden_size":"x","hiden_layers":3})");
  JsonReader reader(json, "config.json");
  EXPECT_EQ(message_of([&] { reader.get_int("hidden_size"); }),
            "[config.json] \"hidden_size\": found string, expected integer");
  EXPECT_EQ(message_of([&] { reader.get_int("vocab_size"); }),
            "[config.json] \"vocab_size\": is missing");
  EXPECT_EQ(reader.get_int("hidden_layers", 7), 7);
  EXPECT_NE(message_of([&] { reader.finish(); }).find("did you mean \"hidden_layers\"?"),
            std::string::npos);
}

}  // namespace
}  // namespace mstar
