// JPEG by libjpeg-turbo.
// jpeglib.h needs <cstdio> before it, and jerror.h needs jpeglib.h.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <vector>

#include "mstar/base/check.h"
#include "mstar/base/error.h"
#include "mstar/media/image_codecs.h"

namespace mstar {

namespace {

// A progressive file may ask for the whole picture to be gone through once a scan; honest ones
// have about ten.
constexpr int kMaxScans = 64;

// libjpeg reports errors by longjmp. Where it goes and what it said.
struct ErrorState {
  jpeg_error_mgr base{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};
  bool cut_short = false;
};

void fail_by_jump(j_common_ptr info) {
  auto* state = reinterpret_cast<ErrorState*>(info->err);
  info->err->format_message(info, state->message);
  std::longjmp(state->jump, 1);
}

void note_message(j_common_ptr info, int level) {
  auto* state = reinterpret_cast<ErrorState*>(info->err);
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) {
    state->cut_short = true;
  }
}

void drop_message(j_common_ptr) {}

void use(ErrorState& state, jpeg_error_mgr*& slot) {
  slot = jpeg_std_error(&state.base);
  state.base.error_exit = fail_by_jump;
  state.base.emit_message = note_message;
  state.base.output_message = drop_message;
}

void limit_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) {
    ERREXIT(info, JERR_BAD_PROGRESSION);
  }
}

struct Decoder {
  ErrorState errors;
  jpeg_decompress_struct info{};
  jpeg_progress_mgr progress{};

  Decoder() { use(errors, info.err); }

  ~Decoder() { jpeg_destroy_decompress(&info); }

  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

// The functions below that call libjpeg own nothing with a destructor: a jump would pass it by.
// They return false after an error.

bool read_header(Decoder& decoder, std::string_view bytes) {
  if (setjmp(decoder.errors.jump) != 0) {
    return false;
  }
  jpeg_create_decompress(&decoder.info);
  jpeg_mem_src(&decoder.info,
               reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  decoder.progress.progress_monitor = limit_scans;
  decoder.info.progress = &decoder.progress;
  jpeg_read_header(&decoder.info, TRUE);
  return true;
}

// Four channels for CMYK, otherwise three.
bool start(Decoder& decoder) {
  if (setjmp(decoder.errors.jump) != 0) {
    return false;
  }
  const bool inks =
      decoder.info.jpeg_color_space == JCS_CMYK || decoder.info.jpeg_color_space == JCS_YCCK;
  decoder.info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&decoder.info);
  return true;
}

bool read_rows(Decoder& decoder, uint8_t* to) {
  if (setjmp(decoder.errors.jump) != 0) {
    return false;
  }
  const size_t row_bytes =
      size_t{decoder.info.output_width} * static_cast<size_t>(decoder.info.output_components);
  while (decoder.info.output_scanline < decoder.info.output_height) {
    JSAMPROW row = to + decoder.info.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.info, &row, 1);
    if (decoder.errors.cut_short) {
      return false;
    }
  }
  jpeg_finish_decompress(&decoder.info);
  return true;
}

// A decoder with its header read.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view where) : where_(where) {
    if (!read_header(decoder_, bytes)) {
      fail();
    }
  }

  codec::Size size() const {
    return {.width = decoder_.info.image_width, .height = decoder_.info.image_height};
  }

  // RGB, or CMYK where is_cmyk() says so afterwards.
  std::vector<uint8_t> read() {
    if (!start(decoder_)) {
      fail();
    }
    const jpeg_decompress_struct& info = decoder_.info;
    std::vector<uint8_t> raw(size_t{info.output_width} * info.output_height *
                             static_cast<size_t>(info.output_components));
    if (!read_rows(decoder_, raw.data())) {
      fail();
    }
    return raw;
  }

  bool is_cmyk() const { return decoder_.info.out_color_space == JCS_CMYK; }

  // Adobe's programs, the only common writers, store ink as 255 - ink.
  bool is_inverted() const { return decoder_.info.saw_Adobe_marker != FALSE; }

 private:
  [[noreturn]] void fail() const {
    codec::broken(where_,
                  ImageFormat::kJpeg,
                  decoder_.errors.cut_short ? "the file is cut short" : decoder_.errors.message);
  }

  const std::string_view where_;
  Decoder decoder_;
};

// Ink and paper without a colour profile: each colour is what its ink and black leave of white.
Tensor rgb_of_inks(const std::vector<uint8_t>& cmyk, codec::Size size, bool inverted) {
  Tensor pixels = Tensor::empty({size.height, size.width, 3}, DType::kU8);
  uint8_t* to = pixels.data<uint8_t>();
  const int flip = inverted ? 0 : 255;
  for (size_t i = 0; i < cmyk.size(); i += 4) {
    const int paper = cmyk[i + 3] ^ flip;
    for (size_t colour = 0; colour < 3; ++colour) {
      *to++ = static_cast<uint8_t>(((cmyk[i + colour] ^ flip) * paper + 127) / 255);
    }
  }
  return pixels;
}

struct Encoder {
  ErrorState errors;
  jpeg_compress_struct info{};
  unsigned char* bytes = nullptr;  // malloc's
  unsigned long size = 0;
};

bool write_jpeg(Encoder& encoder, const Tensor& pixels, int quality) {
  use(encoder.errors, encoder.info.err);
  if (setjmp(encoder.errors.jump) != 0) {
    return false;
  }
  jpeg_create_compress(&encoder.info);
  jpeg_mem_dest(&encoder.info, &encoder.bytes, &encoder.size);
  encoder.info.image_height = static_cast<JDIMENSION>(pixels.dim(0));
  encoder.info.image_width = static_cast<JDIMENSION>(pixels.dim(1));
  encoder.info.input_components = 3;
  encoder.info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&encoder.info);
  jpeg_set_quality(&encoder.info, quality, TRUE);
  jpeg_start_compress(&encoder.info, TRUE);
  while (encoder.info.next_scanline < encoder.info.image_height) {
    JSAMPROW row = pixels.data<uint8_t>() + encoder.info.next_scanline * pixels.stride(0);
    jpeg_write_scanlines(&encoder.info, &row, 1);
  }
  jpeg_finish_compress(&encoder.info);
  return true;
}

}  // namespace

codec::Size codec::jpeg_size(std::string_view bytes, std::string_view where) {
  return Reader(bytes, where).size();
}

Tensor codec::decode_jpeg(std::string_view bytes,
                          std::string_view where,
                          const ImageLimits& limits) {
  Reader reader(bytes, where);
  const Size size = reader.size();
  check_size(size, where, limits);
  const std::vector<uint8_t> raw = reader.read();
  if (reader.is_cmyk()) {
    return rgb_of_inks(raw, size, reader.is_inverted());
  }
  Tensor pixels = Tensor::empty({size.height, size.width, 3}, DType::kU8);
  std::copy(raw.begin(), raw.end(), pixels.data<uint8_t>());
  return pixels;
}

std::string encode_jpeg(const Tensor& pixels, int quality) {
  MSTAR_CHECK(pixels.num_dims() == 3 && pixels.dim(2) == 3 && pixels.dtype() == DType::kU8 &&
                  pixels.is_contiguous(),
              pixels.to_string());
  MSTAR_CHECK(quality >= 1 && quality <= 100, "quality=", quality);
  Encoder encoder;
  const bool written = write_jpeg(encoder, pixels, quality);
  std::string out;
  if (written) {
    out.assign(reinterpret_cast<const char*>(encoder.bytes), encoder.size);
  }
  jpeg_destroy_compress(&encoder.info);
  std::free(encoder.bytes);
  if (!written) {
    throw Error(ErrorCode::kInternal, "[jpeg] the picture could not be written");
  }
  return out;
}

}  // namespace mstar
