// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdio>  // jpeglib.h needs it
#include <cstring>
#include <new>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/file_bytes.hpp>
#include <tandem/engine/picture_file.hpp>

// After cstdio.
#include <jerror.h>
#include <jpeglib.h>

namespace tandem {
namespace {

// libjpeg and libpng report an error by a jump, which must not pass over a C++ object that has a
// destructor. So each function that sets the mark of a jump holds none, and returns false after
// one; what the libraries own is freed by the destructor of the class.

class JpegDecoder {
 public:
  JpegDecoder() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = jump;
    errors_.base.emit_message = on_message;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  bool read_header(const std::vector<std::uint8_t>& file) {
    if (setjmp(errors_.mark)) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, file.data(), static_cast<unsigned long>(file.size()));
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool read_pixels(std::uint8_t* pixels) {
    if (setjmp(errors_.mark)) return false;
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + std::size_t{3} * info_.output_width * info_.output_scanline;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  std::int64_t height() const { return info_.image_height; }
  std::int64_t width() const { return info_.image_width; }
  const char* error() const { return errors_.text; }

  /// Empty, or why its colours are not read.
  std::string unreadable() const {
    switch (info_.jpeg_color_space) {
      case JCS_GRAYSCALE:
      case JCS_YCbCr:
      case JCS_RGB:
        return "";
      case JCS_CMYK:
      case JCS_YCCK:
        return "a CMYK picture; only grey and RGB pictures are read";
      default:
        return fmt::format("{} colour channels of no known meaning", info_.num_components);
    }
  }

 private:
  struct Errors {
    jpeg_error_mgr base;  // first, so that a pointer to it is one to this
    std::jmp_buf mark;
    char text[JMSG_LENGTH_MAX];
  };

  [[noreturn]] static void jump(j_common_ptr info) {
    auto* errors = reinterpret_cast<Errors*>(info->err);
    errors->base.format_message(info, errors->text);
    std::longjmp(errors->mark, 1);
  }

  /// What libjpeg calls a warning (level -1) is a picture that it completes with grey, but for
  /// these two.
  static void on_message(j_common_ptr info, int level) {
    const int code = info->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_JFIF_MAJOR) jump(info);
  }

  jpeg_decompress_struct info_{};
  Errors errors_{};
};

class PngDecoder {
 public:
  explicit PngDecoder(const std::vector<std::uint8_t>& file)
      : next_(file.data()),
        left_(file.size()),
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, this, jump, on_warning)) {
    if (!png_) throw std::bad_alloc();
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  bool read_header() {
    if (setjmp(png_jmpbuf(png_))) return false;
    info_ = png_create_info_struct(png_);
    if (!info_) png_error(png_, "out of memory");
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the caller has one of his own
    png_set_read_fn(png_, this, read);
    png_read_info(png_, info_);
    return true;
  }

  bool read_pixels(std::uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_expand(png_);  // palettes, and grey of less than 8 bits
    png_set_scale_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const std::size_t row_bytes = std::size_t{3} * png_get_image_width(png_, info_);
    if (png_get_rowbytes(png_, info_) != row_bytes) png_error(png_, "unexpected kind of pixels");
    for (int pass = 0; pass < passes; ++pass) {
      for (png_uint_32 y = 0; y < png_get_image_height(png_, info_); ++y) {
        png_read_row(png_, pixels + row_bytes * y, nullptr);
      }
    }
    png_read_end(png_, nullptr);
    return true;
  }

  std::int64_t height() const { return png_get_image_height(png_, info_); }
  std::int64_t width() const { return png_get_image_width(png_, info_); }
  const char* error() const { return text_; }

 private:
  [[noreturn]] static void jump(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::snprintf(self->text_, sizeof(self->text_), "%s", text);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void read(png_structp png, png_bytep target, std::size_t count) {
    auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (count > self->left_) png_error(png, "truncated");
    std::memcpy(target, self->next_, count);
    self->next_ += count;
    self->left_ -= count;
  }

  const std::uint8_t* next_;
  std::size_t left_;
  char text_[200] = "";
  png_structp png_;
  png_infop info_ = nullptr;
};

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::data, path + ": " + reason);
}

/// Memory for a picture of the size in the header.
template <class Decoder>
Picture sized_picture(const std::string& path, const Decoder& decoder) {
  Picture picture;
  picture.height = decoder.height();
  picture.width = decoder.width();
  if (picture.height > kMaxPictureSide || picture.width > kMaxPictureSide) {
    fail(path, fmt::format("{} x {} pixels; at most {} a side are read", picture.width,
                           picture.height, kMaxPictureSide));
  }
  picture.pixels.resize(static_cast<std::size_t>(3 * picture.height * picture.width));
  return picture;
}

Picture read_jpeg(const std::string& path, const std::vector<std::uint8_t>& file) {
  const auto broken = [&path](const JpegDecoder& decoder) {
    fail(path, fmt::format("broken JPEG file ({})", decoder.error()));
  };
  JpegDecoder decoder;
  if (!decoder.read_header(file)) broken(decoder);
  if (const std::string reason = decoder.unreadable(); !reason.empty()) fail(path, reason);
  Picture picture = sized_picture(path, decoder);
  if (!decoder.read_pixels(picture.pixels.data())) broken(decoder);
  return picture;
}

Picture read_png(const std::string& path, const std::vector<std::uint8_t>& file) {
  const auto broken = [&path](const PngDecoder& decoder) {
    fail(path, fmt::format("broken PNG file ({})", decoder.error()));
  };
  PngDecoder decoder(file);
  if (!decoder.read_header()) broken(decoder);
  Picture picture = sized_picture(path, decoder);
  if (!decoder.read_pixels(picture.pixels.data())) broken(decoder);
  return picture;
}

}  // namespace

Picture read_picture(const std::string& path) {
  const std::vector<std::uint8_t> file = read_file_bytes(path);
  const auto begins_with = [&file](std::initializer_list<std::uint8_t> signature) {
    return file.size() >= signature.size() &&
           std::equal(signature.begin(), signature.end(), file.begin());
  };
  if (begins_with({0xff, 0xd8, 0xff})) return read_jpeg(path, file);
  if (begins_with({0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'})) return read_png(path, file);
  fail(path, file.empty() ? "an empty file" : "neither JPEG nor PNG, by its first bytes");
}

std::vector<std::uint8_t> middle_square(const Picture& picture, std::int64_t side) {
  AugmentSpec spec;
  spec.in_h = picture.height;
  spec.in_w = picture.width;
  spec.crop_h = spec.crop_w = std::min(picture.height, picture.width);
  spec.out_h = spec.out_w = side;
  spec.scale = 1;
  check_augment(spec);
  std::vector<std::byte> tables(augment_table_bytes(spec));
  fill_augment_tables(spec, tables.data());
  const AugmentDraw draw = identity_augment(spec);
  std::vector<float> values(static_cast<std::size_t>(3 * side * side));
  host::augment(spec, tables.data(), 1, picture.pixels.data(), &draw, ImageOrder::nhwc,
                values.data());

  std::vector<std::uint8_t> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(),
                 [](float value) { return static_cast<std::uint8_t>(std::nearbyint(value)); });
  return result;
}

}  // namespace tandem
