// WebP by libwebp; of an animation the first frame, by libwebpdemux.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <vector>

#include "mstar/media/image_codecs.h"

namespace mstar::codec {

namespace {

const uint8_t* raw(std::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

WebPBitstreamFeatures features_of(std::string_view bytes, std::string_view where) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(raw(bytes), bytes.size(), &features) != VP8_STATUS_OK) {
    broken(where, ImageFormat::kWebp, "the header makes no sense");
  }
  return features;
}

Tensor first_frame(std::string_view bytes, std::string_view where, const ImageLimits& limits) {
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);
  options.color_mode = MODE_RGBA;
  const WebPData data{raw(bytes), bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  WebPAnimInfo info;
  if (decoder == nullptr || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0) {
    broken(where, ImageFormat::kWebp, "the animation makes no sense");
  }
  const Size size{.width = info.canvas_width, .height = info.canvas_height};
  check_size(size, where, limits);
  uint8_t* rgba = nullptr;
  int end_ms = 0;
  if (WebPAnimDecoderGetNext(decoder.get(), &rgba, &end_ms) == 0) {
    broken(where, ImageFormat::kWebp, "the first frame is broken or cut short");
  }
  return over_white(rgba, size.height, size.width);
}

}  // namespace

Size webp_size(std::string_view bytes, std::string_view where) {
  const WebPBitstreamFeatures features = features_of(bytes, where);
  return {.width = features.width, .height = features.height};
}

Tensor decode_webp(std::string_view bytes, std::string_view where, const ImageLimits& limits) {
  const WebPBitstreamFeatures features = features_of(bytes, where);
  const Size size{.width = features.width, .height = features.height};
  check_size(size, where, limits);
  if (features.has_animation != 0) {
    return first_frame(bytes, where, limits);
  }
  std::vector<uint8_t> rgba(static_cast<size_t>(size.width * size.height * 4));
  if (WebPDecodeRGBAInto(
          raw(bytes), bytes.size(), rgba.data(), rgba.size(), static_cast<int>(size.width * 4)) ==
      nullptr) {
    broken(where, ImageFormat::kWebp, "the picture is broken or cut short");
  }
  return over_white(rgba.data(), size.height, size.width);
}

}  // namespace mstar::codec
