// SPDX-License-Identifier: Apache-2.0
// The segmenter's head for tests of kernels/conv3x3_loss.hpp: cases, and their results by the plain
// operations in double, one after the other, each with the error allowed (docs/numerics.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tandem/kernels/conv3x3.hpp>
#include <tandem/kernels/conv3x3_loss.hpp>
#include <tandem/kernels/permute.hpp>
#include <tandem/kernels/pointwise.hpp>
#include <tandem/kernels/softmax_xent.hpp>
#include <tandem/tests/support/approx.hpp>
#include <type_traits>
#include <vector>

namespace tandem::test {

using Numbers = std::vector<double>;

/// Images in Z-order, labels in raster order, numbers that T holds.
struct HeadCase {
  Conv3x3LossShape shape;
  Numbers x;        ///< [N,S,S,16]
  Numbers w;        ///< [K,3,3,16]
  Numbers b;        ///< [K]
  Numbers dlogits;  ///< [N,S,S,16], 0 from channel K on; for the backward pass alone
  std::vector<std::uint8_t> labels;
  int ignore_label;
  BatchHeader header;

  std::size_t pixels() const { return static_cast<std::size_t>(shape.n * shape.side * shape.side); }
  std::size_t classes() const { return static_cast<std::size_t>(shape.classes); }
  std::size_t channels() const { return kHeadChannels; }

  void count_labels() {
    header.valid_count = 0;
    for (const int label : labels) header.valid_count += label == ignore_label ? 0 : 1;
  }
};

inline std::uint64_t head_hash(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed * 0xD1342543DE82EF95u + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Numbers value(hash of an index), rounded to T.
template <class T, class Value>
Numbers head_numbers(std::size_t count, std::uint64_t seed, Value value) {
  Numbers numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<double>(value(head_hash(seed, i)));
    numbers[i] = static_cast<double>(load(T(static_cast<Accumulator<T>>(number))));
  }
  return numbers;
}

/// -1 .. 1
inline double head_unit(std::uint64_t hash) {
  return static_cast<double>(hash >> 11) * 0x1p-52 - 1;
}

inline HeadCase empty_head_case(const Conv3x3LossShape& shape) {
  HeadCase c{shape, {}, {}, {}, {}, {}, 255, {}};
  c.x.resize(c.pixels() * c.channels());
  c.dlogits.resize(c.x.size());
  c.w.resize(c.classes() * 9 * c.channels());
  c.b.resize(c.classes());
  c.labels.resize(c.pixels());
  c.header.step = 41;
  c.count_labels();
  return c;
}

/// Like a step of training: x the output of a ReLU, half of it 0; one label in 16 ignored.
template <class T>
HeadCase head_case(const Conv3x3LossShape& shape, std::uint64_t seed = 1) {
  HeadCase c = empty_head_case(shape);
  c.x = head_numbers<T>(c.x.size(), seed,
                        [](std::uint64_t h) { return std::max(0.0, 2 * head_unit(h)); });
  c.w = head_numbers<T>(c.w.size(), seed + 1, [](std::uint64_t h) { return head_unit(h) / 4; });
  c.b = head_numbers<float>(c.b.size(), seed + 2, head_unit);
  c.dlogits = head_numbers<T>(c.x.size(), seed + 3, head_unit);
  for (std::size_t i = 0; i < c.dlogits.size(); ++i) {
    if (i % c.channels() >= c.classes()) c.dlogits[i] = 0;
  }
  for (std::size_t i = 0; i < c.labels.size(); ++i) {
    const std::uint64_t h = head_hash(seed + 4, i);
    c.labels[i] = static_cast<std::uint8_t>(h % 16 == 0 ? 255 : (h >> 8) % c.classes());
  }
  c.count_labels();
  return c;
}

/// Where a pixel's channels start in a tensor in Z-order.
inline std::size_t head_offset(const Conv3x3LossShape& s, std::int64_t image, std::int64_t y,
                               std::int64_t x) {
  return static_cast<std::size_t>(
      pixel_offset(ImageOrder::zorder, {s.n, s.side, s.side, kHeadChannels}, image, y, x));
}

/// Errors of a computation: of the sums of products, of the softmax, of the sums over pixels.
struct HeadErrors {
  double product_sum;  ///< relative to the sum of the absolute terms
  double u;            ///< of the softmax
  double db_sum, dw_sum;
  DType stored;
};

/// Of a sum of 9 x 16 products and a bias, and of sums over pixels in double, in the accumulator of
/// a type.
inline HeadErrors twin_errors(DType type) {
  const double u = unit_roundoff(accumulator_of(type)) + unit_roundoff(DType::f64);
  return {gamma(145, u), u, u, u, type};
}

struct HeadLoss {
  std::vector<Expected> dlogits;  ///< [N,S,S,16]
  std::vector<Expected> result;   ///< step, count, loss
};

namespace head_detail {

inline Numbers permuted(const HeadCase& c, ImageOrder from, const Numbers& values, ImageOrder to) {
  Numbers result(values.size());
  const auto channels = static_cast<std::int64_t>(values.size() / c.pixels());
  host::permute({c.shape.n, c.shape.side, c.shape.side, channels}, from, values.data(), to,
                result.data());
  return result;
}

inline Numbers absolute(Numbers values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

inline host::Conv3x3Shape conv_shape(const HeadCase& c) {
  return {c.shape.n, c.shape.side, c.shape.side, kHeadChannels, c.shape.classes};
}

/// Logits [N,S,S,K] in raster order.
inline Numbers logits(const HeadCase& c, const Numbers& x, const Numbers& w, const Numbers& b) {
  const host::Conv3x3Shape shape = conv_shape(c);
  Numbers y(c.pixels() * c.classes());
  Numbers workspace(host::conv3x3_forward_workspace(shape, sizeof(double)));
  const Numbers raster = permuted(c, ImageOrder::zorder, x, ImageOrder::nhwc);
  host::conv3x3_forward(shape, raster.data(), w.data(), y.data(), workspace.data());
  host::bias_forward(b.data(), y.data(), static_cast<std::int64_t>(c.pixels()), c.shape.classes);
  return y;
}

}  // namespace head_detail

/// The gradient and the loss.
inline HeadLoss head_loss(const HeadCase& c, const HeadErrors& errors) {
  namespace d = head_detail;
  const double u = errors.u;
  const std::size_t classes = c.classes();
  const Numbers logits = d::logits(c, c.x, c.w, c.b);
  const Numbers magnitudes = d::logits(c, d::absolute(c.x), d::absolute(c.w), d::absolute(c.b));
  Numbers gradient(logits.size());
  StepResult result;
  host::softmax_cross_entropy(c.header, logits.data(), c.labels.data(), c.ignore_label,
                              static_cast<std::int64_t>(c.pixels()), c.shape.classes,
                              gradient.data(), &result);

  Numbers value(c.pixels() * c.channels()), bound(value.size());
  double loss_error = 0;
  for (std::size_t pixel = 0; pixel < c.pixels(); ++pixel) {
    if (c.labels[pixel] == c.ignore_label) continue;
    const double* z = logits.data() + pixel * classes;
    const double largest = *std::max_element(z, z + classes);
    const double logit_error =
        errors.product_sum * *std::max_element(magnitudes.begin() + pixel * classes,
                                               magnitudes.begin() + (pixel + 1) * classes);
    // e_k = exp(z_k - largest): the difference is rounded, perhaps its product with a rounded
    // log2(e) as well, then the function errs. Errors are relative.
    Numbers e(classes), e_error(classes);
    double sum = 0, sum_error = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      const double below = largest - z[k];
      e[k] = std::exp(-below);
      e_error[k] = std::expm1(logit_error + 3 * u * (below + 2 * logit_error) + kExpUlps * 2 * u);
      sum += e[k];
      sum_error += e[k] * e_error[k] + smallest_normal(errors.stored);
    }
    sum_error = sum_error / sum + gamma(static_cast<double>(classes), u);
    for (std::size_t k = 0; k < classes; ++k) {
      // A reciprocal within 1 ulp and a product; a division is better.
      const double p = e[k] / sum;
      const double p_error = p * ((1 + e_error[k]) / (1 - sum_error) * (1 + 2 * u) * (1 + u) - 1);
      const double gap = gradient[pixel * classes + k];
      const Expected stored_value =
          stored(gap, p_error + u * (std::abs(gap) + p_error) + smallest_normal(errors.stored),
                 errors.stored);
      value[pixel * c.channels() + k] = stored_value.value;
      bound[pixel * c.channels() + k] = stored_value.bound;
    }
    // log(sum) + (largest - z_label). A kernel takes the logarithm of a product of denominators, a
    // rounding each, and adds the label's logits of up to 16 pixels in the type of the softmax.
    const double gap = largest - z[c.labels[pixel]];
    loss_error += sum_error / (1 - sum_error) + u +
                  kLogUlps * 2 * u * (std::log(sum) + sum_error + u) + logit_error +
                  gamma(17, u) * (gap + 2 * logit_error) + u * (std::log(sum) + gap);
  }
  HeadLoss reference;
  value = d::permuted(c, ImageOrder::nhwc, value, ImageOrder::zorder);
  bound = d::permuted(c, ImageOrder::nhwc, bound, ImageOrder::zorder);
  for (std::size_t i = 0; i < value.size(); ++i) reference.dlogits.push_back({value[i], bound[i]});
  const auto count = static_cast<double>(c.header.valid_count);
  const double mean_error =
      count > 0 ? loss_error / count + rounding_tolerance(count + 1, DType::f64) * result.loss : 0;
  reference.result = {{static_cast<double>(result.step), 0}, {count, 0}, {result.loss, mean_error}};
  return reference;
}

/// Sums of dlogits as they were stored.
inline std::vector<Expected> head_bias_gradient(const HeadCase& c, const Numbers& dlogits,
                                                const HeadErrors& errors) {
  std::vector<Expected> db;
  for (std::size_t k = 0; k < c.classes(); ++k) {
    long double sum = 0, magnitude = 0;
    for (std::size_t i = k; i < dlogits.size(); i += c.channels()) {
      sum += dlogits[i];
      magnitude += std::abs(dlogits[i]);
    }
    const auto n = static_cast<double>(c.pixels());
    db.push_back({static_cast<double>(sum),
                  (errors.db_sum + gamma(n, 0x1p-53)) * static_cast<double>(magnitude)});
  }
  return db;
}

struct HeadGradients {
  std::vector<Expected> dx;  ///< [N,S,S,16]
  std::vector<Expected> dw;  ///< [K,3,3,16]
};

namespace head_detail {

struct Gradients {
  Numbers dx, dw;
};

inline Gradients gradients(const HeadCase& c, const Numbers& dlogits, const Numbers& x,
                           const Numbers& w) {
  const host::Conv3x3Shape shape = conv_shape(c);
  const Numbers raster = permuted(c, ImageOrder::zorder, dlogits, ImageOrder::nhwc);
  const Numbers raster_x = permuted(c, ImageOrder::zorder, x, ImageOrder::nhwc);
  Numbers dy;
  for (std::size_t i = 0; i < raster.size(); ++i) {
    if (i % c.channels() < c.classes()) dy.push_back(raster[i]);
  }
  Gradients result{Numbers(x.size()), Numbers(w.size())};
  Numbers workspace(std::max(host::conv3x3_backward_data_workspace(shape, sizeof(double)),
                             host::conv3x3_backward_weights_workspace(shape, sizeof(double))));
  host::conv3x3_backward_weights(shape, raster_x.data(), dy.data(), result.dw.data(),
                                 workspace.data());
  host::conv3x3_backward_data(shape, dy.data(), w.data(), result.dx.data(), workspace.data());
  result.dx = permuted(c, ImageOrder::nhwc, result.dx, ImageOrder::zorder);
  host::relu_backward(x.data(), result.dx.data(), static_cast<std::int64_t>(x.size()));
  return result;
}

}  // namespace head_detail

inline HeadGradients head_gradients(const HeadCase& c, const HeadErrors& errors) {
  namespace d = head_detail;
  const d::Gradients values = d::gradients(c, c.dlogits, c.x, c.w);
  const d::Gradients sums =
      d::gradients(c, d::absolute(c.dlogits), d::absolute(c.x), d::absolute(c.w));
  HeadGradients result;
  for (std::size_t i = 0; i < values.dx.size(); ++i) {
    // Closed units are 0, to the bit; the absolute values opened those of a negative x.
    const double error = c.x[i] <= 0 ? 0 : errors.product_sum * sums.dx[i];
    result.dx.push_back(stored(values.dx[i], error, errors.stored));
  }
  for (std::size_t i = 0; i < values.dw.size(); ++i) {
    const auto n = static_cast<double>(c.pixels());
    result.dw.push_back({values.dw[i], (errors.dw_sum + gamma(n, 0x1p-53)) * sums.dw[i]});
  }
  return result;
}

// --- storage ---

template <class T>
std::vector<T> head_storage(const Numbers& numbers) {
  std::vector<T> values;
  values.reserve(numbers.size());
  for (const double number : numbers) values.push_back(T(static_cast<Accumulator<T>>(number)));
  return values;
}

template <class T>
Numbers head_doubles(const std::vector<T>& values) {
  Numbers numbers;
  numbers.reserve(values.size());
  for (const T& value : values) numbers.push_back(static_cast<double>(load(value)));
  return numbers;
}

inline Numbers head_result(const StepResult& result) {
  return {static_cast<double>(result.step), static_cast<double>(result.valid_count), result.loss};
}

}  // namespace tandem::test
