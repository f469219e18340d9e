// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tandem/tests/support/augment_oracle.hpp>

namespace tandem::test {
namespace {

constexpr double kRange = 255;
constexpr double kFloat = 0x1p-24;  // unit roundoff of tables and coordinates

/// n roundings of the arithmetic, and `own` of the oracle's.
double roundings(double n, double u, double own) { return gamma(n, u) + gamma(own, 0x1p-53); }

/// Values 0 .. 255 with their errors, three channels.
struct Image {
  std::int64_t h, w;
  std::vector<Expected> pixels;

  Image(std::int64_t height, std::int64_t width)
      : h(height), w(width), pixels(static_cast<std::size_t>(height * width * 3)) {}
  Expected& at(std::int64_t y, std::int64_t x, int c) {
    return pixels[static_cast<std::size_t>((y * w + x) * 3 + c)];
  }
  const Expected& at(std::int64_t y, std::int64_t x, int c) const {
    return const_cast<Image*>(this)->at(y, x, c);
  }
  bool has(std::int64_t y, std::int64_t x) const { return y >= 0 && y < h && x >= 0 && x < w; }
};

Image crop(const AugmentSpec& spec, const AugmentDraw& draw, const std::uint8_t* picture) {
  Image result(spec.crop_h, spec.crop_w);
  for (std::int64_t y = 0; y < result.h; ++y) {
    for (std::int64_t x = 0; x < result.w; ++x) {
      const std::int64_t from_y = y + draw.crop_y - spec.padding;
      const std::int64_t from_x = x + draw.crop_x - spec.padding;
      const bool inside = from_y >= 0 && from_y < spec.in_h && from_x >= 0 && from_x < spec.in_w;
      for (int c = 0; c < 3; ++c) {
        result.at(y, x, c).value = inside ? picture[(from_y * spec.in_w + from_x) * 3 + c]
                                          : static_cast<double>(spec.fill);
      }
    }
  }
  return result;
}

Image flip(const Image& in) {
  Image result(in.h, in.w);
  for (std::int64_t y = 0; y < in.h; ++y) {
    for (std::int64_t x = 0; x < in.w; ++x) {
      for (int c = 0; c < 3; ++c) result.at(y, x, c) = in.at(y, in.w - 1 - x, c);
    }
  }
  return result;
}

/// How one output row or column is mixed from input ones.
struct Mix {
  std::vector<double> weights;  ///< one for each input
  int taps = 0;                 ///< of them above 0
  double error = 0;             ///< sum of what the float weights may be off by
};

/// Half-pixel centres. A filter's width is two pixels of the coarser of the two grids (antialias),
/// or of the input's.
Mix mix(std::int64_t in, std::int64_t out, std::int64_t i, bool antialias) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double centre = (static_cast<double>(i) + 0.5) * scale;
  // Where the ratio has so few bits that its product with i + 0.5 is a float, coordinates do not
  // round. Else ratio, product and difference round by u each, relative to at most `in`.
  const bool exact = std::fmod(scale * 4096, 1) == 0 && in < 2048 && out < 2048;
  const double coordinate_error = exact ? 0 : 3 * kFloat * static_cast<double>(in);

  Mix result;
  result.weights.assign(static_cast<std::size_t>(in), 0.0);
  const double reach = antialias ? std::max(scale, 1.0) : 1.0;
  if (antialias) {
    double sum = 0;
    for (std::int64_t j = 0; j < in; ++j) {
      const double distance = std::fabs(static_cast<double>(j) + 0.5 - centre) / reach;
      result.weights[static_cast<std::size_t>(j)] = std::max(0.0, 1 - distance);
      sum += result.weights[static_cast<std::size_t>(j)];
    }
    for (double& weight : result.weights) weight /= sum;
  } else {
    const double last = static_cast<double>(in) - 1;
    const double source = std::clamp(centre - 0.5, 0.0, last);
    for (std::int64_t j = 0; j < in; ++j) {
      result.weights[static_cast<std::size_t>(j)] =
          std::max(0.0, 1 - std::fabs(static_cast<double>(j) - source));
    }
  }
  for (double weight : result.weights) result.taps += weight > 0;
  // A weight before division by their sum is 1 - |distance| / reach: the coordinate's error, and
  // four roundings of numbers up to 1. There are at most 2 reach + 2 <= 4 reach of them, their sum
  // is at least reach / 2, and dividing by a sum that is off doubles the error: 16 in all. Two
  // weights of a sum that is 1 by construction need no division.
  const double one = coordinate_error / reach + (exact && reach == 1 ? 0 : 4 * kFloat);
  result.error = (antialias && !(exact && reach == 1) ? 16 : 2) * one;
  return result;
}

Image resize(const AugmentSpec& spec, const Image& in, double u) {
  Image rows(spec.out_h, in.w);
  for (std::int64_t y = 0; y < rows.h; ++y) {
    const Mix m = mix(in.h, rows.h, y, spec.antialias);
    for (std::int64_t x = 0; x < rows.w; ++x) {
      for (int c = 0; c < 3; ++c) {
        Expected& result = rows.at(y, x, c);
        for (std::int64_t j = 0; j < in.h; ++j) {
          result.value += m.weights[static_cast<std::size_t>(j)] * in.at(j, x, c).value;
        }
        result.bound = kRange * (m.error + roundings(m.taps, u, m.taps));
      }
    }
  }
  Image result(spec.out_h, spec.out_w);
  for (std::int64_t x = 0; x < result.w; ++x) {
    const Mix m = mix(in.w, result.w, x, spec.antialias);
    for (std::int64_t y = 0; y < result.h; ++y) {
      for (int c = 0; c < 3; ++c) {
        Expected& pixel = result.at(y, x, c);
        for (std::int64_t j = 0; j < in.w; ++j) {
          pixel.value += m.weights[static_cast<std::size_t>(j)] * rows.at(y, j, c).value;
          pixel.bound += m.weights[static_cast<std::size_t>(j)] * rows.at(y, j, c).bound;
        }
        pixel.bound += kRange * (m.error + roundings(m.taps, u, m.taps));
      }
    }
  }
  return result;
}

Image gather(const AugmentSpec& spec, const Image& in, const std::vector<std::int64_t>& sources) {
  Image result(in.h, in.w);
  for (std::int64_t i = 0; i < in.h * in.w; ++i) {
    const std::int64_t source = sources.at(static_cast<std::size_t>(i));
    for (int c = 0; c < 3; ++c) {
      result.at(i / in.w, i % in.w, c) = source < 0 ? Expected{static_cast<double>(spec.fill), 0}
                                                    : in.at(source / in.w, source % in.w, c);
    }
  }
  return result;
}

/// Bilinear between the four neighbours, of which those outside are 0; `inside` is the same of a
/// picture of ones. torchvision then mixes the fill in with inside * value + (1 - inside) * fill.
Image rotate_bilinear(const AugmentSpec& spec, const Image& in, double degrees, double u) {
  // Float coordinates: sine, cosine, quotient and product round (4 u) relative to the distances
  // from the centre, at most (w + h) / 2; the sum of two, + 1, * size / 2 and - 0.5 (4 u) relative
  // to at most twice the size, for coordinates that are inside or next to it.
  const double sides = static_cast<double>(in.h + in.w);
  const double largest = static_cast<double>(std::max(in.h, in.w));
  const double coordinate_error = kFloat * (4 * sides / 2 + 4 * 2 * largest);
  Image result(in.h, in.w);
  for (std::int64_t y = 0; y < in.h; ++y) {
    for (std::int64_t x = 0; x < in.w; ++x) {
      const SourcePoint p = rotation_source(degrees, in.h, in.w, y, x);
      const double top = std::floor(p.y), left = std::floor(p.x);
      double sum[3] = {0, 0, 0}, error = 0, inside = 0;
      for (int dy = 0; dy < 2; ++dy) {
        for (int dx = 0; dx < 2; ++dx) {
          const double weight = (1 - std::fabs(p.y - top - dy)) * (1 - std::fabs(p.x - left - dx));
          const auto from_y = static_cast<std::int64_t>(top) + dy;
          const auto from_x = static_cast<std::int64_t>(left) + dx;
          if (!in.has(from_y, from_x)) continue;
          inside += weight;
          for (int c = 0; c < 3; ++c) {
            sum[c] += weight * in.at(from_y, from_x, c).value;
            error = std::max(error, in.at(from_y, from_x, c).bound);
          }
        }
      }
      // Each of value and `inside` changes by at most the range a pixel in either direction.
      // Roundings: two weights' products and differences (4), the dot product (4), the mix (4).
      const double added = kRange * (2 * 2 * coordinate_error + roundings(12, u, 12));
      for (int c = 0; c < 3; ++c) {
        result.at(y, x, c) = {inside * sum[c] + (1 - inside) * static_cast<double>(spec.fill),
                              error + added};
      }
    }
  }
  return result;
}

/// The pixel that stands for pixel i of a row of `size`; -1 for a zero.
std::int64_t behind_border(std::int64_t i, std::int64_t size, Border border) {
  if (i >= 0 && i < size) return i;
  switch (border) {
    case Border::constant:
      return -1;
    case Border::replicate:
      return i < 0 ? 0 : size - 1;
    case Border::reflect:
      return i < 0 ? behind_border(-i, size, border)
                   : behind_border(2 * (size - 1) - i, size, border);
    case Border::symmetric:
      break;
  }
  return i < 0 ? behind_border(-1 - i, size, border)
               : behind_border(2 * size - 1 - i, size, border);
}

/// All taps at once, as a sum over a square.
Image blur(const AugmentSpec& spec, const AugmentDraw& draw, const Image& in, double u) {
  const int radius = spec.blur_taps / 2;
  const int terms = spec.blur_taps * spec.blur_taps;
  Image result(in.h, in.w);
  for (std::int64_t y = 0; y < in.h; ++y) {
    for (std::int64_t x = 0; x < in.w; ++x) {
      double weight_sum = 0;
      for (int dy = -radius; dy <= radius; ++dy) {
        for (int dx = -radius; dx <= radius; ++dx) {
          const double weight = static_cast<double>(draw.blur[std::abs(dy)]) *
                                static_cast<double>(draw.blur[std::abs(dx)]);
          const std::int64_t from_y = behind_border(y + dy, in.h, spec.border);
          const std::int64_t from_x = behind_border(x + dx, in.w, spec.border);
          if (from_y < 0 || from_x < 0) continue;
          weight_sum += weight;
          for (int c = 0; c < 3; ++c) {
            result.at(y, x, c).value += weight * in.at(from_y, from_x, c).value;
            result.at(y, x, c).bound += weight * in.at(from_y, from_x, c).bound;
          }
        }
      }
      // Two passes: k products and k - 1 sums, each relative to the sum of the terms; underflow.
      for (int c = 0; c < 3; ++c) {
        result.at(y, x, c).bound +=
            kRange * weight_sum * roundings(2 * spec.blur_taps, u, terms) + 2 * terms * 0x1p-126;
      }
    }
  }
  return result;
}

}  // namespace

SourcePoint rotation_source(double degrees, std::int64_t h, std::int64_t w, std::int64_t y,
                            std::int64_t x) {
  const double angle = degrees * 3.14159265358979323846 / 180;
  const double centre_y = (static_cast<double>(h) - 1) / 2;
  const double centre_x = (static_cast<double>(w) - 1) / 2;
  // With y upwards, as angles are measured; the picture turns by +angle, so the source by -angle.
  const double right = static_cast<double>(x) - centre_x;
  const double up = centre_y - static_cast<double>(y);
  const double source_right = std::cos(-angle) * right - std::sin(-angle) * up;
  const double source_up = std::sin(-angle) * right + std::cos(-angle) * up;
  return {centre_y - source_up, centre_x + source_right};
}

std::vector<std::int64_t> allowed_sources(double degrees, std::int64_t h, std::int64_t w,
                                          std::int64_t y, std::int64_t x) {
  const double tolerance = 2 * static_cast<double>(std::max(h, w)) * kFloat;
  const SourcePoint p = rotation_source(degrees, h, w, y, x);
  std::vector<std::int64_t> result;
  for (double from_y : {std::floor(p.y + 0.5 - tolerance), std::floor(p.y + 0.5 + tolerance)}) {
    for (double from_x : {std::floor(p.x + 0.5 - tolerance), std::floor(p.x + 0.5 + tolerance)}) {
      const bool inside = from_y >= 0 && from_y < static_cast<double>(h) && from_x >= 0 &&
                          from_x < static_cast<double>(w);
      result.push_back(
          inside ? static_cast<std::int64_t>(from_y) * w + static_cast<std::int64_t>(from_x) : -1);
    }
  }
  return result;
}

std::vector<Expected> augment_oracle(const AugmentSpec& spec, const AugmentDraw& draw,
                                     const std::uint8_t* picture, DType type,
                                     const std::vector<std::int64_t>& sources) {
  const double u = unit_roundoff(accumulator_of(type));
  Image image = crop(spec, draw, picture);
  if (draw.flip) image = flip(image);
  if (spec.out_h != spec.crop_h || spec.out_w != spec.crop_w) image = resize(spec, image, u);
  if (spec.rotate && spec.rotation == Interpolation::nearest) {
    image = gather(spec, image, sources);
  } else if (spec.rotate) {
    image = rotate_bilinear(spec, image, static_cast<double>(draw.degrees), u);
  }
  if (spec.blur_taps > 0) image = blur(spec, draw, image, u);

  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const double scale = static_cast<double>(spec.scale);
    const double mean = static_cast<double>(spec.mean[i % 3]);
    const double deviation = static_cast<double>(spec.deviation[i % 3]);
    const Expected v = image.pixels[i];
    const double product = v.value * scale;
    const double difference = product - mean;
    const double result = difference / deviation;
    // Product, difference and quotient round once each, and the oracle's do; by 1, of 0 and by 1
    // not at all.
    const double each = u + 0x1p-53;
    const double error =
        (std::fabs(scale) * v.bound + (scale == 1 ? 0 : each * std::fabs(product)) +
         (mean == 0 ? 0 : each * std::fabs(difference))) /
            std::fabs(deviation) +
        (deviation == 1 ? 0 : each * std::fabs(result));
    image.pixels[i] = stored(result, error * (1 + 4 * u), type);
  }
  return image.pixels;
}

}  // namespace tandem::test
