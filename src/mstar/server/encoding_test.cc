#include "mstar/server/encoding.h"

#include <gtest/gtest.h>

#include "mstar/base/error.h"

namespace mstar {
namespace {

TEST(Base64, RoundTripOfEveryLength) {
  std::string bytes;
  for (int length = 0; length < 70; ++length) {
    EXPECT_EQ(decode_base64_lenient(encode_base64(bytes), "test"), bytes);
    bytes += static_cast<char>(length * 37 + 200);
  }
  EXPECT_EQ(encode_base64("Man"), "TWFu");
  EXPECT_EQ(encode_base64("Ma"), "TWE=");
  EXPECT_EQ(encode_base64("M"), "TQ==");
}

TEST(Base64, SpellingsOfClients) {
  EXPECT_EQ(decode_base64_lenient("TWE", "test"), "Ma");
  EXPECT_EQ(decode_base64_lenient("TW\r\nFu ", "test"), "Man");
  EXPECT_EQ(decode_base64_lenient("-_-_", "test"), decode_base64_lenient("+/+/", "test"));
  for (const char* wrong : {"TWE=TQ==", "T", "TW!u", "TWFuT"}) {
    EXPECT_THROW(decode_base64_lenient(wrong, "test"), Error) << wrong;
  }
}

TEST(Media, ContentWinsOverTheName) {
  EXPECT_EQ(media_modality("\x89PNG\r\n\x1a\n", "a.mp4"), Modality::kImage);
  EXPECT_EQ(media_modality(std::string("RIFF\0\0\0\0WAVE", 12), ""), Modality::kAudio);
  EXPECT_EQ(media_modality(std::string("\0\0\0\x18"
                                       "ftypisom",
                                       12),
                           ""),
            Modality::kVideo);
  EXPECT_EQ(media_modality("whatever", "B.JPEG"), Modality::kImage);
  EXPECT_EQ(media_modality("whatever", "x.txt"), Modality::kNone);
}

TEST(Media, DataUrisOnly) {
  const std::string png = encode_base64("\x89PNG\r\n\x1a\n rest");
  EXPECT_EQ(*media_from_uri("data:image/png;base64," + png, Modality::kImage, "x").bytes,
            "\x89PNG\r\n\x1a\n rest");
  EXPECT_EQ(media_from_uri("DATA:IMAGE/PNG;BASE64," + png, Modality::kImage, "x").modality,
            Modality::kImage);
  for (const std::string& uri : {std::string("http://host/a.png"),
                                 std::string("HTTPS://host/a.png"),
                                 std::string("file:///etc/passwd"),
                                 std::string("/etc/passwd"),
                                 std::string("data:image/png,abc"),
                                 std::string("data:image/png;base64,"),
                                 std::string("")}) {
    EXPECT_THROW(media_from_uri(uri, Modality::kImage, "x"), Error) << uri;
  }
  EXPECT_THROW(media_from_uri("data:audio/wav;base64," + png, Modality::kAudio, "x"), Error);
}

TEST(Wav, HeaderSaysWhatFollows) {
  const std::string wav = wav_file(std::string(8, '\1'), 16000, 2);
  ASSERT_EQ(wav.size(), 52U);
  EXPECT_EQ(wav.substr(0, 4), "RIFF");
  EXPECT_EQ(wav.substr(4, 4), std::string("\x2c\0\0\0", 4));
  EXPECT_EQ(wav.substr(24, 4), std::string("\x80\x3e\0\0", 4));
  EXPECT_EQ(wav.substr(40, 4), std::string("\x08\0\0\0", 4));
}

}  // namespace
}  // namespace mstar
