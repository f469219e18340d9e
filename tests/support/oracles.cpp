// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <tandem/tests/support/oracles.hpp>

namespace tandem::test {

double round_to(DType type, double value) {
  if (type == DType::f64 || value == 0 || !std::isfinite(value)) return value;
  if (type == DType::u8) return std::clamp(std::nearbyint(value), 0.0, 255.0);
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  // f32 and bf16 have the same range; below 2^-126 their neighbours are equally far apart.
  const int shift = precision_bits(type) - std::max(exponent, -125);
  return std::ldexp(std::nearbyint(std::ldexp(value, shift)), -shift);
}

std::vector<std::pair<int, int>> z_order(int side) {
  if (side == 1) return {{0, 0}};
  const int half = side / 2;
  std::vector<std::pair<int, int>> order;
  for (int bottom : {0, half}) {
    for (int right : {0, half}) {
      for (auto [y, x] : z_order(half)) order.emplace_back(bottom + y, right + x);
    }
  }
  return order;
}

namespace {

/// For each element in memory order, where it is in raster order.
std::vector<std::int64_t> memory_order(const TensorDesc& d) {
  std::vector<std::pair<int, int>> pixels;
  if (d.layout == Layout::zorder) {
    pixels = z_order(static_cast<int>(d.h));
  } else {
    for (int y = 0; y < d.h; ++y) {
      for (int x = 0; x < d.w; ++x) pixels.emplace_back(y, x);
    }
  }
  std::vector<std::int64_t> order;
  const auto add = [&](std::int64_t n, std::pair<int, int> pixel, std::int64_t c) {
    order.push_back(((n * d.h + pixel.first) * d.w + pixel.second) * d.c + c);
  };
  for (std::int64_t n = 0; n < d.n; ++n) {
    if (d.layout == Layout::nchw) {
      for (std::int64_t c = 0; c < d.c; ++c) {
        for (auto pixel : pixels) add(n, pixel, c);
      }
    } else {
      for (auto pixel : pixels) {
        for (std::int64_t c = 0; c < d.c; ++c) add(n, pixel, c);
      }
    }
  }
  return order;
}

}  // namespace

std::vector<std::byte> encode(const TensorDesc& desc, const Raster& raster) {
  std::vector<std::byte> bytes(desc.bytes());
  std::byte* out = bytes.data();
  for (std::int64_t i : memory_order(desc)) {
    const double value = raster.at(static_cast<std::size_t>(i));
    const auto narrow = static_cast<float>(value);
    switch (desc.dtype) {
      case DType::u8:
        *out = static_cast<std::byte>(value);
        break;
      case DType::f32:
        std::memcpy(out, &narrow, 4);
        break;
      case DType::bf16:  // the upper half of the float, little-endian
        std::memcpy(out, reinterpret_cast<const std::byte*>(&narrow) + 2, 2);
        break;
      case DType::f64:
        std::memcpy(out, &value, 8);
        break;
    }
    out += size_of(desc.dtype);
  }
  return bytes;
}

Raster decode(const TensorDesc& desc, const void* bytes) {
  Raster raster(static_cast<std::size_t>(desc.elements()));
  const auto* in = static_cast<const std::byte*>(bytes);
  for (std::int64_t i : memory_order(desc)) {
    double value = 0;
    float narrow = 0;
    switch (desc.dtype) {
      case DType::u8:
        value = std::to_integer<int>(*in);
        break;
      case DType::f32:
        std::memcpy(&narrow, in, 4);
        break;
      case DType::bf16:
        std::memcpy(reinterpret_cast<std::byte*>(&narrow) + 2, in, 2);
        break;
      case DType::f64:
        std::memcpy(&value, in, 8);
        break;
    }
    if (desc.dtype == DType::f32 || desc.dtype == DType::bf16) value = static_cast<double>(narrow);
    raster[static_cast<std::size_t>(i)] = value;
    in += size_of(desc.dtype);
  }
  return raster;
}

namespace {

using Outputs = std::vector<std::vector<Expected>>;

/// A sum of products with what its error bound needs.
struct DotProduct {
  double value = 0;
  double magnitude = 0;  ///< S, the sum of the absolute terms
  int terms = 0;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
    ++terms;
  }
};

std::size_t at(const TensorDesc& d, std::int64_t n, std::int64_t h, std::int64_t w,
               std::int64_t c) {
  return static_cast<std::size_t>(((n * d.h + h) * d.w + w) * d.c + c);
}

// A convolution ties three tensors together: in [N,H,W,B], out [N,h,w,A] and w [A,kh,kw,B] by
//   F = sum over n, oy, ox, ky, kx, a, b of
//       out[n,oy,ox,a] * w[a,ky,kx,b] * in[n, oy*stride + ky - pad, ox*stride + kx - pad, b]
// without the terms outside the image. Forward, both gradients, and those of the transposed
// convolution (whose input is `out` and whose output is `in`) are each the derivative of F by one
// of the three: the sum of the products of the two others.
enum class By { in, weight, out };

struct Convolution {
  const TensorDesc& in;
  const TensorDesc& weight;
  const TensorDesc& out;
  std::int64_t stride, pad;
};

std::vector<Expected> derivative(const Convolution& conv, By by, const Raster* in,
                                 const Raster* weight, const Raster* out) {
  const TensorDesc& target = by == By::in ? conv.in : by == By::out ? conv.out : conv.weight;
  std::vector<DotProduct> sums(static_cast<std::size_t>(target.elements()));
  for (std::int64_t n = 0; n < conv.out.n; ++n)
    for (std::int64_t oy = 0; oy < conv.out.h; ++oy)
      for (std::int64_t ox = 0; ox < conv.out.w; ++ox)
        for (std::int64_t ky = 0; ky < conv.weight.h; ++ky)
          for (std::int64_t kx = 0; kx < conv.weight.w; ++kx) {
            const std::int64_t y = oy * conv.stride + ky - conv.pad;
            const std::int64_t x = ox * conv.stride + kx - conv.pad;
            if (y < 0 || y >= conv.in.h || x < 0 || x >= conv.in.w) continue;
            for (std::int64_t a = 0; a < conv.out.c; ++a)
              for (std::int64_t b = 0; b < conv.in.c; ++b) {
                const std::size_t i = at(conv.in, n, y, x, b);
                const std::size_t w = at(conv.weight, a, ky, kx, b);
                const std::size_t o = at(conv.out, n, oy, ox, a);
                switch (by) {
                  case By::in:
                    sums[i].add((*weight)[w], (*out)[o]);
                    break;
                  case By::weight:
                    sums[w].add((*in)[i], (*out)[o]);
                    break;
                  case By::out:
                    sums[o].add((*in)[i], (*weight)[w]);
                    break;
                }
              }
          }
  std::vector<Expected> result;
  for (const DotProduct& s : sums) {
    result.push_back(
        stored(s.value, dot_tolerance(s.terms, target.dtype) * s.magnitude, target.dtype));
  }
  return result;
}

/// Operands (input-side tensor, other tensor, result) of the three operations of a convolution.
Outputs convolution(const Operation& op, const std::vector<Raster>& v, By by, std::int64_t stride,
                    std::int64_t pad, bool transposed) {
  const auto d = [&](int i) -> const TensorDesc& { return op.operands.at(i).desc; };
  // Operands by name in the registry's order: forward x w y, data dy w dx, weights x dy dw.
  const bool forward = by == By::out, data = by == By::in;
  const int x = data ? 2 : 0, w = by == By::weight ? 2 : 1, y = forward ? 2 : data ? 0 : 1;
  if (!transposed) {
    return {{}, {}, derivative({d(x), d(w), d(y), stride, pad}, by, &v[x], &v[w], &v[y])};
  }
  const By mirrored = forward ? By::in : data ? By::out : By::weight;
  return {{}, {}, derivative({d(y), d(w), d(x), stride, pad}, mirrored, &v[y], &v[w], &v[x])};
}

std::vector<Expected> exact(const Raster& values) {
  std::vector<Expected> result;
  for (double value : values) result.push_back({value, 0});
  return result;
}

Outputs u8_to_float(const Operation& op, const Raster& x) {
  // One product, exact in double (8 + 24 bits), rounded once to f32 and perhaps again to bf16.
  const DType type = op.operands[1].desc.dtype;
  std::vector<Expected> y;
  for (double value : x) {
    const double product = static_cast<double>(op.scale) * value;
    if (type == DType::bf16) {
      y.push_back(stored(product, unit_roundoff(DType::f32) * product, type));
    } else {
      y.push_back({round_to(type, product), 0});
    }
  }
  return {{}, y};
}

Outputs bias_forward(const Operation& op, const Raster& b, const Raster& y) {
  const DType type = op.operands[1].desc.dtype;
  std::vector<Expected> result;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double sum = y[i] + b[i % b.size()];
    result.push_back(stored(sum, rounding_tolerance(1, type) * std::abs(sum), type));
  }
  return {{}, result};
}

Outputs bias_backward(const Operation& op, const Raster& dy) {
  const TensorDesc& db = op.operands[1].desc;
  std::vector<DotProduct> sums(static_cast<std::size_t>(db.c));
  for (std::size_t i = 0; i < dy.size(); ++i) sums[i % sums.size()].add(dy[i], 1);
  std::vector<Expected> result;
  for (const DotProduct& s : sums) {
    result.push_back({s.value, sum_tolerance(s.terms, db.dtype) * s.magnitude});
  }
  return {{}, result};
}

Outputs softmax_cross_entropy(const Operation& op, const Raster& logits, const Raster& labels,
                              const BatchHeader& header) {
  const DType type = op.operands[0].desc.dtype, gradient_type = op.operands[3].desc.dtype;
  const double u = unit_roundoff(type) + unit_roundoff(DType::f64);  // the oracle errs as well
  const auto classes = static_cast<std::size_t>(op.operands[0].desc.c);
  std::vector<Expected> dlogits;
  double loss = 0, loss_error = 0;
  for (std::size_t pixel = 0; pixel < labels.size(); ++pixel) {
    if (labels[pixel] == op.ignore_label) {
      dlogits.resize(dlogits.size() + classes);
      continue;
    }
    const double* z = logits.data() + pixel * classes;
    const double largest = *std::max_element(z, z + classes);
    // e_k = exp(z_k - largest): the difference is rounded, then the function errs.
    std::vector<double> e(classes), e_error(classes);  // e_error is relative
    double sum = 0, sum_error = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      e[k] = std::exp(z[k] - largest);
      e_error[k] = std::expm1(u * (largest - z[k]) + kExpUlps * 2 * u);
      sum += e[k];
      sum_error += e[k] * e_error[k] + smallest_normal(type);
    }
    sum_error = sum_error / sum + gamma(static_cast<double>(classes), u);  // relative
    for (std::size_t k = 0; k < classes; ++k) {
      const double p = e[k] / sum;
      const double p_error = p * ((1 + e_error[k]) / (1 - sum_error) * (1 + u) - 1);
      const double d = p - (static_cast<double>(k) == labels[pixel] ? 1 : 0);
      dlogits.push_back(
          stored(d, p_error + u * (std::abs(d) + p_error) + smallest_normal(type), gradient_type));
    }
    // -log p = log(sum) + (largest - z_label)
    const double gap = largest - z[static_cast<std::size_t>(labels[pixel])];
    const double log_sum = std::log(sum);
    loss += log_sum + gap;
    loss_error += sum_error / (1 - sum_error) + kLogUlps * 2 * u * (log_sum + sum_error) + u * gap +
                  u * (log_sum + gap);
  }
  // The sum over pixels and the division are done in double.
  const auto count = static_cast<double>(header.valid_count);
  const double mean = count > 0 ? loss / count : 0;
  const double mean_error =
      count > 0 ? loss_error / count + rounding_tolerance(count + 1, DType::f64) * mean : 0;
  return {
      {}, {}, {}, dlogits, {{static_cast<double>(header.step), 0}, {count, 0}, {mean, mean_error}}};
}

/// The textbook's sigmoid and binary cross-entropy, which in double loses nothing that shows. Where
/// exp(s) would overflow, log(1 + exp(s)) is s to the last bit.
Outputs binary_cross_entropy(const Operation& op, const Raster& logits, const Raster& labels,
                             const BatchHeader& header) {
  const DType type = op.operands[0].desc.dtype, gradient_type = op.operands[3].desc.dtype;
  const double u = unit_roundoff(type) + unit_roundoff(DType::f64);  // the oracle errs as well
  const auto classes = static_cast<std::size_t>(op.operands[0].desc.c);
  const auto count = static_cast<double>(header.valid_count);
  const auto terms = count * static_cast<double>(classes);
  std::vector<Expected> dlogits;
  double loss = 0, loss_error = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double label = labels[i / classes], z = logits[i];
    if (label == op.ignore_label) {
      dlogits.push_back({0, 0});
      continue;
    }
    const double target = static_cast<double>(i % classes) == label ? 1 : 0;
    const double wrong = target == 1 ? 1 / (1 + std::exp(z)) : 1 / (1 + std::exp(-z));
    const double d = (target == 1 ? -wrong : wrong) / static_cast<double>(classes);
    // An exponential that is at most 1; a sum with 1; two quotients.
    const double e_error = kExpUlps * 2 * u;
    const double relative = (1 + e_error) * (1 + u) * (1 + u) / (1 - e_error - u) - 1;
    dlogits.push_back(stored(d, relative * std::abs(d) + smallest_normal(type), gradient_type));
    const double s = target == 1 ? -z : z;
    const double term = s > 700 ? s : std::log(1 + std::exp(s));
    const double e = std::exp(-std::abs(s));
    loss += term;
    loss_error += e * e_error + smallest_normal(type) + kLog1pUlps * 2 * u * std::log1p(e) +
                  u * term + 4 * unit_roundoff(DType::f64) * (1 + term);
  }
  // The sum over logits and the division are done in double.
  const double mean = count > 0 ? loss / terms : 0;
  const double mean_error =
      count > 0 ? loss_error / terms + rounding_tolerance(terms + 2, DType::f64) * mean : 0;
  return {
      {}, {}, {}, dlogits, {{static_cast<double>(header.step), 0}, {count, 0}, {mean, mean_error}}};
}

Outputs sigmoid_forward(const Operation& op, const Raster& x) {
  const DType type = op.operands[1].desc.dtype;
  const double u = unit_roundoff(accumulator_of(type)) + unit_roundoff(DType::f64);
  const double e_error = kExpUlps * 2 * u;
  std::vector<Expected> y;
  for (double value : x) {
    const double exact =
        value < 0 ? std::exp(value) / (std::exp(value) + 1) : 1 / (1 + std::exp(-value));
    // An exponential that is at most 1, a sum with 1, a quotient.
    const double relative = (1 + e_error) * (1 + u) / (1 - e_error - u) - 1;
    y.push_back(stored(exact, relative * exact + smallest_normal(accumulator_of(type)), type));
  }
  return {{}, y};
}

Outputs sigmoid_backward(const Operation& op, const Raster& y, const Raster& dy) {
  const DType type = op.operands[1].desc.dtype;
  std::vector<Expected> result;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double d = dy[i] * y[i] * (1 - y[i]);
    result.push_back(
        stored(d, rounding_tolerance(3, type) * std::abs(d) + smallest_normal(accumulator_of(type)),
               type));
  }
  return {{}, result};
}

/// header, w, dw, result.
Outputs l2_penalty(const Operation& op, const Raster& w, const Raster& dw, const Raster& before,
                   const BatchHeader& header) {
  const DType type = op.operands[1].desc.dtype;
  StepResult result;
  std::vector<std::uint8_t> bytes(before.begin(), before.end());
  std::memcpy(&result, bytes.data(), sizeof result);
  const auto count = static_cast<double>(header.valid_count), l2 = static_cast<double>(op.l2);
  std::vector<Expected> gradients;
  double squares = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double penalty = count * l2 * 2 * w[i];
    // The factor, the product and the sum.
    gradients.push_back(
        {dw[i] + penalty, rounding_tolerance(3, type) * (std::abs(dw[i]) + std::abs(penalty))});
    squares += w[i] * w[i];
  }
  const double added = count > 0 ? l2 * squares : 0, loss = result.loss + added;
  const auto terms = static_cast<double>(w.size());
  return {{},
          {},
          count > 0 ? gradients : exact(dw),
          {{static_cast<double>(result.step), 0},
           {static_cast<double>(result.valid_count), 0},
           {loss, count > 0
                      ? rounding_tolerance(terms + 2, DType::f64) * (std::abs(result.loss) + added)
                      : 0.0}}};
}

Outputs argmax(const Operation& op, const Raster& logits) {
  const auto classes = static_cast<std::size_t>(op.operands[0].desc.c);
  std::vector<Expected> result;
  for (std::size_t i = 0; i < logits.size(); i += classes) {
    std::size_t best = 0;
    for (std::size_t k = 1; k < classes; ++k) {
      if (logits[i + k] > logits[i + best]) best = k;
    }
    result.push_back({static_cast<double>(best), 0});
  }
  return {{}, result};
}

/// Error of a sum that has the term dw / count in it, beyond the roundings of the type itself: the
/// header holds 1 / count and -lr / count in f32, the second from two rounded steps.
double header_error(double gradient_term) {
  return gamma(2, unit_roundoff(DType::f32)) * std::abs(gradient_term);
}

Outputs sgd(const Operation& op, const Raster& dw, const Raster& w, const BatchHeader& header) {
  if (header.valid_count == 0) return {{}, {}, exact(w)};
  const DType type = op.operands[2].desc.dtype;
  const double lr = header.learning_rate, decay = header.weight_decay;
  const auto count = static_cast<double>(header.valid_count);
  std::vector<Expected> result;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double gradient = lr * dw[i] / count, shrink = lr * decay * w[i];
    const double magnitude = std::abs(w[i]) + std::abs(gradient) + std::abs(shrink);
    // On the longest path, the gradient's: quotient, sum with the decay, product with lr, sum.
    result.push_back({w[i] - (gradient + shrink),
                      rounding_tolerance(5, type) * magnitude + header_error(gradient)});
  }
  return {{}, {}, result};
}

Outputs sgd_momentum(const Operation& op, const Raster& dw, const Raster& v, const Raster& w,
                     const BatchHeader& header) {
  if (header.valid_count == 0) return {{}, {}, exact(v), exact(w)};
  const DType type = op.operands[3].desc.dtype;
  const double lr = header.learning_rate, decay = header.weight_decay;
  const auto count = static_cast<double>(header.valid_count);
  std::vector<Expected> velocities, weights;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double kept = static_cast<double>(header.momentum) * v[i];
    const double gradient = dw[i] / count, shrink = decay * w[i];
    const double velocity = kept + gradient + shrink;
    const double magnitude = std::abs(kept) + std::abs(gradient) + std::abs(shrink);
    velocities.push_back(
        {velocity, rounding_tolerance(4, type) * magnitude + header_error(gradient)});
    weights.push_back(
        {w[i] - lr * velocity, rounding_tolerance(6, type) * (std::abs(w[i]) + lr * magnitude) +
                                   header_error(lr * gradient)});
  }
  return {{}, {}, velocities, weights};
}

Outputs relu_bias_backward(const Operation& op, const Raster& y, Raster dy) {
  const TensorDesc& db = op.operands[2].desc;
  std::vector<DotProduct> sums(static_cast<std::size_t>(db.c));
  for (std::size_t i = 0; i < dy.size(); ++i) {
    if (!(y[i] > 0)) dy[i] = 0;
    sums[i % sums.size()].add(dy[i], 1);
  }
  std::vector<Expected> result;
  for (const DotProduct& s : sums)
    result.push_back({s.value, sum_tolerance(s.terms, db.dtype) * s.magnitude});
  return {{}, exact(dy), result};
}

/// bf16 copies of weights.
std::vector<Expected> copies_of(const std::vector<Expected>& weights) {
  std::vector<Expected> copies;
  for (const Expected& w : weights)
    copies.push_back(
        stored(w.value, w.bound + unit_roundoff(DType::f32) * std::abs(w.value), DType::bf16));
  return copies;
}

/// A weight that keeps most of itself and loses a step along its gradient. The gradient has the
/// error of its sum; then come two products, a sum, and what the header's factors are rounded by.
Outputs weight_update(const Operation& op, const std::vector<Raster>& v, std::int64_t side,
                      bool transposed, const BatchHeader& header) {
  const auto d = [&](int i) -> const TensorDesc& { return op.operands.at(i).desc; };
  const int in = transposed ? 2 : 1, out = transposed ? 1 : 2;
  const std::vector<Expected> gradients =
      derivative({d(in), d(3), d(out), side, 0}, By::weight, &v[in], nullptr, &v[out]);
  const bool copy = op.operands.size() > 4;
  if (header.valid_count == 0) {
    const std::vector<Expected> kept = exact(v[3]);
    return copy ? Outputs{{}, {}, {}, kept, copies_of(kept)} : Outputs{{}, {}, {}, kept};
  }
  const DType type = op.operands[3].desc.dtype;
  const double rate = header.learning_rate / static_cast<double>(header.valid_count);
  const double keep = 1 - static_cast<double>(header.learning_rate) * header.weight_decay;
  const double keep_error = gamma(2, unit_roundoff(DType::f32));
  std::vector<Expected> result;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double step = rate * gradients[i].value, kept = keep * v[3][i];
    const double magnitude = std::abs(kept) + std::abs(step);
    result.push_back({kept - step, rounding_tolerance(3, type) * magnitude +
                                       rate * gradients[i].bound * (1 + 1e-6) + header_error(step) +
                                       keep_error * std::abs(kept)});
  }
  return copy ? Outputs{{}, {}, {}, result, copies_of(result)} : Outputs{{}, {}, {}, result};
}

/// header, dw, v, w, copy, dw of bias, bias.
Outputs sgd_many(const Operation& op, const std::vector<Raster>& v, const BatchHeader& header) {
  Operation first = op, second = op;
  first.operands = {op.operands[0], op.operands[1], op.operands[2], op.operands[3]};
  second.operands = {op.operands[0], op.operands[5], op.operands[6]};
  const Outputs momentum = sgd_momentum(first, v[1], v[2], v[3], header);
  const Outputs plain = sgd(second, v[5], v[6], header);
  return {{}, {}, momentum[2], momentum[3], copies_of(momentum[3]), {}, plain[2]};
}

}  // namespace

Outputs oracle(const Operation& op, const std::vector<Raster>& v, const BatchHeader& header) {
  switch (op.kind) {
    case OpKind::copy:
    case OpKind::permute:
      return {{}, exact(v[0])};
    case OpKind::cast: {
      Raster y = v[0];
      for (double& value : y) value = round_to(op.operands[1].desc.dtype, value);
      return {{}, exact(y)};
    }
    case OpKind::u8_to_float:
      return u8_to_float(op, v[0]);
    case OpKind::conv1x1_forward:
      return convolution(op, v, By::out, 1, 0, false);
    case OpKind::conv1x1_backward_data:
      return convolution(op, v, By::in, 1, 0, false);
    case OpKind::conv1x1_backward_weights:
      return convolution(op, v, By::weight, 1, 0, false);
    case OpKind::conv2x2_forward:
      return convolution(op, v, By::out, 2, 0, false);
    case OpKind::conv2x2_backward_data:
      return convolution(op, v, By::in, 2, 0, false);
    case OpKind::conv2x2_backward_weights:
      return convolution(op, v, By::weight, 2, 0, false);
    case OpKind::tconv2x2_forward:
      return convolution(op, v, By::out, 2, 0, true);
    case OpKind::tconv2x2_backward_data:
      return convolution(op, v, By::in, 2, 0, true);
    case OpKind::tconv2x2_backward_weights:
      return convolution(op, v, By::weight, 2, 0, true);
    case OpKind::conv3x3_forward:
      return convolution(op, v, By::out, 1, 1, false);
    case OpKind::conv3x3_backward_data:
      return convolution(op, v, By::in, 1, 1, false);
    case OpKind::conv3x3_backward_weights:
      return convolution(op, v, By::weight, 1, 1, false);
    case OpKind::bias_forward:
      return bias_forward(op, v[0], v[1]);
    case OpKind::bias_backward:
      return bias_backward(op, v[0]);
    case OpKind::relu_forward: {
      Raster y = v[0];
      for (double& value : y) value = value < 0 ? 0 : value;
      return {exact(y)};
    }
    case OpKind::relu_backward: {
      Raster dy = v[1];
      for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = v[0][i] > 0 ? dy[i] : 0;
      return {{}, exact(dy)};
    }
    case OpKind::softmax_cross_entropy:
      return softmax_cross_entropy(op, v[0], v[1], header);
    case OpKind::sigmoid_forward:
      return sigmoid_forward(op, v[0]);
    case OpKind::sigmoid_backward:
      return sigmoid_backward(op, v[0], v[1]);
    case OpKind::binary_cross_entropy:
      return binary_cross_entropy(op, v[0], v[1], header);
    case OpKind::l2_penalty:
      return l2_penalty(op, v[1], v[2], v[3], header);
    case OpKind::argmax:
      return argmax(op, v[0]);
    case OpKind::sgd:
      return sgd(op, v[1], v[2], header);
    case OpKind::sgd_momentum:
      return sgd_momentum(op, v[1], v[2], v[3], header);
    case OpKind::bias_relu_forward: {
      Outputs outputs = bias_forward(op, v[0], v[1]);
      for (Expected& e : outputs[1]) e.value = std::max(e.value, 0.0);
      return outputs;
    }
    case OpKind::relu_bias_backward:
      return relu_bias_backward(op, v[0], v[1]);
    case OpKind::conv1x1_update:
      return weight_update(op, v, 1, false, header);
    case OpKind::conv2x2_update:
      return weight_update(op, v, 2, false, header);
    case OpKind::tconv2x2_update:
      return weight_update(op, v, 2, true, header);
    case OpKind::sgd_many:
      return sgd_many(op, v, header);
    case OpKind::augment:  // see OpCase::expected()
    case OpKind::conv3x3_loss:
    case OpKind::conv3x3_loss_backward:
    case OpKind::callable:
      break;
  }
  throw std::logic_error("no oracle for this kind of operation");
}

}  // namespace tandem::test
