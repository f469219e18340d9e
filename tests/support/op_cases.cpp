// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <tandem/engine/augment_draw.hpp>
#include <tandem/engine/registry.hpp>
#include <tandem/tests/support/augment_oracle.hpp>
#include <tandem/tests/support/op_cases.hpp>

namespace tandem::test {

const std::vector<CaseSizes>& case_sizes() {
  static const std::vector<CaseSizes> sizes = {
      {"odd", 3, 3, 5, 7, 4, 5, 7},      {"batch_1", 1, 1, 3, 5, 2, 3, 2},
      {"partial", 5, 3, 4, 3, 2, 7, 3},  {"one_pixel", 3, 3, 1, 1, 1, 3, 5},
      {"one_row", 2, 2, 1, 6, 1, 1, 11}, {"wide", 2, 2, 6, 9, 8, 33, 20},
  };
  return sizes;
}

bool OpCase::is_header(std::size_t operand) const {
  return operation.operands.at(operand).name == "header";
}
bool OpCase::is_result(std::size_t operand) const {
  return operation.operands.at(operand).name == "result";
}

std::vector<std::vector<Expected>> OpCase::expected() const {
  if (operation.kind != OpKind::augment) return oracle(operation, values, header);
  const AugmentSpec& spec = operation.augment;
  const std::vector<std::uint8_t> pictures(values[0].begin(), values[0].end());
  const auto picture = static_cast<std::size_t>(spec.in_h * spec.in_w * kAugmentChannels);
  std::vector<Expected> y;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    // By nearest the cases turn by half a circle or not at all: the pixels, backwards or as they
    // are.
    std::vector<std::int64_t> sources(static_cast<std::size_t>(spec.out_h * spec.out_w));
    std::iota(sources.begin(), sources.end(), 0);
    if (draws[i].turn == Turn::half) std::reverse(sources.begin(), sources.end());
    const auto one = augment_oracle(spec, draws[i], pictures.data() + i * picture, type, sources);
    y.insert(y.end(), one.begin(), one.end());
  }
  return {{}, {}, {}, y};
}

std::vector<DType> storage_types(OpKind kind) {
  switch (kind) {
    case OpKind::copy:
    case OpKind::permute:
      return {DType::u8, DType::f32, DType::bf16, DType::f64};
    case OpKind::cast:
      return {DType::f32, DType::bf16};
    case OpKind::argmax:      // of logits
    case OpKind::l2_penalty:  // of master weights
    case OpKind::sgd:         // on master weights
    case OpKind::sgd_momentum:
    case OpKind::sgd_many:
      return {DType::f32, DType::f64};
    default:
      return {DType::f32, DType::bf16, DType::f64};
  }
}

namespace {

/// Seeds differ with everything that tells two tensors apart, so that none repeats another.
std::mt19937_64 generator(const std::string& name) {
  std::seed_seq seed(name.begin(), name.end());
  return std::mt19937_64(seed);
}

/// Uniform in [-1, 1) for floats, in 0..255 for bytes.
Raster draw(const TensorDesc& desc, const std::string& name) {
  auto random = generator(name);
  Raster values(static_cast<std::size_t>(desc.elements()));
  for (double& value : values) {
    const double unit = std::ldexp(static_cast<double>(random() >> 11), -53);
    value = desc.dtype == DType::u8 ? std::floor(256 * unit) : round_to(desc.dtype, 2 * unit - 1);
  }
  return values;
}

/// Adds operands to a case, with values for what is read.
class CaseBuilder {
 public:
  explicit CaseBuilder(OpCase& op_case) : case_(op_case) {}

  CaseBuilder& read(const char* name, const TensorDesc& desc) {
    return add(name, desc, Access::read);
  }
  CaseBuilder& write(const char* name, const TensorDesc& desc) {
    return add(name, desc, Access::write);
  }
  CaseBuilder& read_write(const char* name, const TensorDesc& desc) {
    return add(name, desc, Access::read_write);
  }
  CaseBuilder& read(const char* name, const std::vector<std::uint8_t>& bytes) {
    append(name, byte_desc(bytes.size()), Access::read);
    case_.values.back().assign(bytes.begin(), bytes.end());
    return *this;
  }
  CaseBuilder& header() {
    append("header", byte_desc(batch_header_bytes(case_.sizes.n)), Access::read);
    return *this;
  }
  CaseBuilder& result() {
    append("result", byte_desc(sizeof(StepResult)), Access::write);
    return *this;
  }
  CaseBuilder& result_so_far(const StepResult& result) {
    append("result", byte_desc(sizeof(StepResult)), Access::read_write);
    set_result(case_, case_.values.size() - 1, result);
    return *this;
  }

 private:
  CaseBuilder& add(const char* name, const TensorDesc& desc, Access access) {
    append(name, desc, access);
    if (reads(access)) case_.values.back() = draw(desc, case_.name + name);
    return *this;
  }
  void append(const char* name, const TensorDesc& desc, Access access) {
    auto& operands = case_.operation.operands;
    operands.push_back({static_cast<BufferId>(operands.size()), desc, access, name, false});
    case_.values.emplace_back();
  }
  OpCase& case_;
};

/// Labels below the number of classes; one in four ignored, and all of the padding.
void draw_labels(OpCase& op_case, std::size_t operand) {
  const auto classes = static_cast<int>(op_case.sizes.k);
  const TensorDesc& desc = op_case.operation.operands[operand].desc;
  const std::int64_t real = op_case.sizes.samples * desc.h * desc.w;
  Raster& labels = op_case.values[operand];
  std::int64_t count = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto byte = static_cast<int>(labels[i]);
    const bool ignored = static_cast<std::int64_t>(i) >= real || (i > 0 && byte % 4 == 3);
    labels[i] = ignored ? op_case.operation.ignore_label : (byte / 4) % classes;
    if (!ignored) ++count;
  }
  set_count(op_case.header, count);
}

/// A shrunk and an enlarged side, so that the tables matter. `plain`: what one kernel cannot do.
AugmentSpec augment_spec(std::int64_t out_h, std::int64_t out_w, bool plain) {
  AugmentSpec spec;
  spec.out_h = out_h;
  spec.out_w = out_w;
  spec.crop_h = out_h + 2;
  spec.crop_w = std::max<std::int64_t>(1, out_w - 1);
  spec.in_h = spec.crop_h + 3;
  spec.in_w = spec.crop_w + 2;
  spec.rotate = true;
  spec.blur_taps = 5;
  const float mean[] = {0.4f, 0.5f, 0.6f}, deviation[] = {0.25f, 0.2f, 0.3f};
  std::copy(std::begin(mean), std::end(mean), spec.mean);
  std::copy(std::begin(deviation), std::end(deviation), spec.deviation);
  if (plain) {
    spec.padding = 2;
    spec.rotation = Interpolation::bilinear;
    spec.border = Border::replicate;
    spec.fill = 80;
  } else {
    spec.border = std::min(out_h, out_w) > 2 ? Border::reflect : Border::constant;
  }
  return spec;
}

std::vector<std::uint8_t> augment_tables(const AugmentSpec& spec) {
  std::vector<std::uint8_t> bytes(augment_table_bytes(spec));
  fill_augment_tables(spec, bytes.data());
  return bytes;
}

void draw_augments(OpCase& op_case, std::uint64_t seed) {
  const AugmentSpec& spec = op_case.operation.augment;
  const bool nearest = spec.rotation == Interpolation::nearest;
  AugmentRanges ranges;
  ranges.flip_probability = 0.5;
  op_case.draws.clear();
  for (std::int64_t i = 0; i < op_case.sizes.n; ++i) {
    AugmentDraw draw = draw_augment(spec, ranges, seed, 0, i);
    if (nearest) draw.degrees = i % 2 == 0 ? 180.0f : 0.0f;
    op_case.draws.push_back(force_augment(spec, draw));
  }
}

/// The padding of a partial batch has no gradient.
void clear_padding(OpCase& op_case) {
  const CaseSizes& s = op_case.sizes;
  for (std::size_t i = 0; i < op_case.values.size(); ++i) {
    const Operand& operand = op_case.operation.operands[i];
    Raster& values = op_case.values[i];
    if (operand.name != "dy" || values.empty()) continue;
    std::fill(values.begin() + s.samples * (operand.desc.elements() / s.n), values.end(), 0.0);
  }
}

}  // namespace

void set_result(OpCase& op_case, std::size_t operand, const StepResult& result) {
  std::uint8_t bytes[sizeof result];
  std::memcpy(bytes, &result, sizeof result);
  op_case.values[operand].assign(std::begin(bytes), std::end(bytes));
}

void set_count(BatchHeader& header, std::int64_t count) {
  header.valid_count = count;
  header.inverse_count = count > 0 ? 1.0f / static_cast<float>(count) : 0.0f;
  header.minus_rate_over_count =
      count > 0 ? -header.learning_rate / static_cast<float>(count) : 0.0f;
  header.keep = count > 0 ? 1.0f - header.learning_rate * header.weight_decay : 1.0f;
}

namespace {

bool has_cases(OpKind kind) {
  return kind != OpKind::conv3x3_loss && kind != OpKind::conv3x3_loss_backward &&
         kind != OpKind::callable;
}

}  // namespace

std::vector<int> kinds_with_cases() {
  std::vector<int> kinds;
  for (int kind = 0; kind < kOpKindCount; ++kind)
    if (has_cases(static_cast<OpKind>(kind))) kinds.push_back(kind);
  return kinds;
}

std::string kind_name(OpKind kind) { return op_info(kind).name; }

std::string kind_test_name(const testing::TestParamInfo<int>& kind) {
  std::string name = kind_name(static_cast<OpKind>(kind.param));
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}
std::string type_test_name(const testing::TestParamInfo<DType>& type) {
  return name_of(type.param);
}

OpCase make_case(OpKind kind, DType type, Layout layout, const CaseSizes& s, Layout to) {
  OpCase result;
  result.name = kind_name(kind) + " " + name_of(type) + " " + name_of(layout) + " " + s.name;
  if (kind == OpKind::permute) result.name += std::string(" to ") + name_of(to);
  result.sizes = s;
  result.type = type;
  Operation& op = result.operation;
  op.kind = kind;
  op.name = "tested." + kind_name(kind);
  BatchHeader& header = result.header;
  header.step = 41;
  header.epoch = 2;
  header.samples = static_cast<std::int32_t>(s.samples);
  header.capacity = static_cast<std::int32_t>(s.n);
  header.learning_rate = 0.1f;
  header.momentum = 0.9f;
  header.weight_decay = 0.05f;
  set_count(header, 37);

  const DType wide = accumulator_of(type);  // gradients of parameters, logits
  const bool z = layout == Layout::zorder || to == Layout::zorder;
  const std::int64_t h = z ? s.side : s.h, w = z ? s.side : s.w;
  const TensorDesc x{type, layout, s.n, h, w, s.c};                  // images in and out of the
  const TensorDesc y{type, layout, s.n, h, w, s.k};                  // layers that keep the size
  const TensorDesc doubled{type, layout, s.n, 2 * h, 2 * w, s.c};    // in of conv2x2
  const TensorDesc doubled_k{type, layout, s.n, 2 * h, 2 * w, s.k};  // out of tconv2x2
  const auto conv_weight = [&](DType t, std::int64_t side) {
    return TensorDesc{t, Layout::nhwc, s.k, side, side, s.c};
  };
  const auto tconv_weight = [&](DType t) { return TensorDesc{t, Layout::nhwc, s.c, 2, 2, s.k}; };
  const auto bias = [&](DType t) { return TensorDesc{t, Layout::nhwc, 1, 1, 1, s.k}; };
  const TensorDesc logits{wide, layout, s.n, h, w, s.k};
  const TensorDesc labels{DType::u8, layout, s.n, h, w, 1};

  CaseBuilder build(result);
  switch (kind) {
    case OpKind::copy:
      build.read("src", x).write("dst", x);
      break;
    case OpKind::cast: {
      TensorDesc target = x;
      target.dtype = type == DType::f32 ? DType::bf16 : DType::f32;
      build.read("x", x).write("y", target);
      break;
    }
    case OpKind::u8_to_float: {
      op.scale = 1.0f / 255;
      TensorDesc bytes = x;
      bytes.dtype = DType::u8;
      bytes.layout = Layout::nhwc;
      build.read("x", bytes).write("y", x);
      break;
    }
    case OpKind::augment: {
      op.augment = augment_spec(h, w, false);
      const TensorDesc pictures{DType::u8, Layout::nhwc, s.n, op.augment.in_h, op.augment.in_w, 3};
      build.read("x", pictures).header().read("tables", augment_tables(op.augment));
      build.write("y", {type, layout, s.n, h, w, 3});
      draw_augments(result, 1);
      break;
    }
    case OpKind::permute: {
      TensorDesc target = x;
      target.layout = to;
      build.read("x", x).write("y", target);
      break;
    }
    case OpKind::conv1x1_forward:
      build.read("x", x).read("w", conv_weight(type, 1)).write("y", y);
      break;
    case OpKind::conv1x1_backward_data:
      build.read("dy", y).read("w", conv_weight(type, 1)).write("dx", x);
      break;
    case OpKind::conv1x1_backward_weights:
      build.read("x", x).read("dy", y).write("dw", conv_weight(wide, 1));
      break;
    case OpKind::conv2x2_forward:
      build.read("x", doubled).read("w", conv_weight(type, 2)).write("y", y);
      break;
    case OpKind::conv2x2_backward_data:
      build.read("dy", y).read("w", conv_weight(type, 2)).write("dx", doubled);
      break;
    case OpKind::conv2x2_backward_weights:
      build.read("x", doubled).read("dy", y).write("dw", conv_weight(wide, 2));
      break;
    case OpKind::tconv2x2_forward:
      build.read("x", x).read("w", tconv_weight(type)).write("y", doubled_k);
      break;
    case OpKind::tconv2x2_backward_data:
      build.read("dy", doubled_k).read("w", tconv_weight(type)).write("dx", x);
      break;
    case OpKind::tconv2x2_backward_weights:
      build.read("x", x).read("dy", doubled_k).write("dw", tconv_weight(wide));
      break;
    case OpKind::conv3x3_forward:
      build.read("x", x).read("w", conv_weight(type, 3)).write("y", y);
      break;
    case OpKind::conv3x3_backward_data:
      build.read("dy", y).read("w", conv_weight(type, 3)).write("dx", x);
      break;
    case OpKind::conv3x3_backward_weights:
      build.read("x", x).read("dy", y).write("dw", conv_weight(wide, 3));
      break;
    case OpKind::bias_forward:
      build.read("b", bias(type)).read_write("y", y);
      break;
    case OpKind::bias_backward:
      build.read("dy", y).write("db", bias(wide));
      break;
    case OpKind::relu_forward:
      build.read_write("y", y);
      break;
    case OpKind::relu_backward:
      build.read("y", y).read_write("dy", y);
      break;
    case OpKind::sigmoid_forward:
      build.read("x", y).write("y", y);
      break;
    case OpKind::sigmoid_backward:
      build.read("y", y).read_write("dy", y);
      break;
    case OpKind::softmax_cross_entropy:
    case OpKind::binary_cross_entropy:
      build.read("logits", logits).read("labels", labels).header().write("dlogits", y).result();
      draw_labels(result, 1);
      break;
    case OpKind::argmax:
      build.read("logits", logits).write("y", labels);
      break;
    case OpKind::l2_penalty:
      op.l2 = 0.01f;
      build.header().read("w", conv_weight(type, 2)).read_write("dw", conv_weight(type, 2));
      build.result_so_far({41, 37, 0.75});
      break;
    case OpKind::sgd:
      build.header().read("dw", conv_weight(type, 2)).read_write("w", conv_weight(type, 2));
      break;
    case OpKind::sgd_momentum:
      build.header()
          .read("dw", conv_weight(type, 2))
          .read_write("v", conv_weight(type, 2))
          .read_write("w", conv_weight(type, 2));
      break;
    case OpKind::bias_relu_forward:
      build.read("b", bias(type)).read_write("y", y);
      break;
    case OpKind::relu_bias_backward:
      build.read("y", y).read_write("dy", y).write("db", bias(wide));
      break;
    case OpKind::conv1x1_update:
      build.header().read("x", x).read("dy", y).read_write("w", conv_weight(wide, 1));
      if (type == DType::bf16) build.write("copy", conv_weight(type, 1));
      break;
    case OpKind::conv2x2_update:
      build.header().read("x", doubled).read("dy", y).read_write("w", conv_weight(wide, 2));
      if (type == DType::bf16) build.write("copy", conv_weight(type, 2));
      break;
    case OpKind::tconv2x2_update:
      build.header().read("x", x).read("dy", doubled_k).read_write("w", tconv_weight(wide));
      if (type == DType::bf16) build.write("copy", tconv_weight(type));
      break;
    case OpKind::sgd_many: {
      TensorDesc copy = conv_weight(DType::bf16, 2);
      build.header()
          .read("dw", conv_weight(type, 2))
          .read_write("v", conv_weight(type, 2))
          .read_write("w", conv_weight(type, 2))
          .write("copy", copy)
          .read("dw of bias", bias(type))
          .read_write("bias", bias(type));
      break;
    }
    case OpKind::conv3x3_loss:
    case OpKind::conv3x3_loss_backward:
    case OpKind::callable:
      throw std::logic_error("this kind has no cases here");
  }
  clear_padding(result);
  return result;
}

OpCase make_plain_augment_case(DType type, Layout layout, const CaseSizes& sizes) {
  OpCase result = make_case(OpKind::augment, type, layout, sizes);
  result.name += " plain";
  Operation& op = result.operation;
  op.augment = augment_spec(op.augment.out_h, op.augment.out_w, true);
  op.plain = true;
  const std::vector<std::uint8_t> tables = augment_tables(op.augment);
  op.operands[2].desc = byte_desc(tables.size());
  result.values[2].assign(tables.begin(), tables.end());
  draw_augments(result, 2);
  return result;
}

namespace {

/// Sizes of one kind beyond any block that its body may work in.
std::vector<CaseSizes> large_sizes(OpKind kind) {
  switch (kind) {
    case OpKind::conv3x3_forward:
    case OpKind::conv3x3_backward_data:
    case OpKind::conv3x3_backward_weights:
      return {{"large", 3, 3, 37, 31, 32, 33, 20}};
    case OpKind::bias_forward:
    case OpKind::bias_backward:
    case OpKind::bias_relu_forward:
    case OpKind::relu_bias_backward:
      return {{"large", 3, 3, 5, 3, 4, 1, 1030}};
    case OpKind::conv1x1_forward:
    case OpKind::conv1x1_backward_weights:
    case OpKind::conv1x1_update:
      return {{"first_layer", 3, 3, 37, 31, 32, 3, 16}};
    case OpKind::conv2x2_update:  // tiles of cuda::weight_update, pixels of more than one chunk
      return {{"tiles", 5, 5, 4, 4, 4, 64, 128}};
    case OpKind::tconv2x2_update:
      return {{"tiles", 5, 5, 4, 4, 4, 128, 64}};
    case OpKind::softmax_cross_entropy:
    case OpKind::binary_cross_entropy:
    case OpKind::argmax:
      return {{"most_classes", 3, 3, 5, 3, 4, 1, 254}};
    default:
      return {};
  }
}

bool is_product_update(OpKind kind) {
  return kind == OpKind::conv1x1_update || kind == OpKind::conv2x2_update ||
         kind == OpKind::tconv2x2_update;
}

bool may_have_own_kernel(OpKind kind) {
  return is_product_update(kind) || kind == OpKind::conv1x1_forward ||
         kind == OpKind::conv1x1_backward_weights;
}

}  // namespace

std::vector<OpCase> op_cases(OpKind kind) {
  std::vector<CaseSizes> all_sizes = case_sizes();
  for (const CaseSizes& sizes : large_sizes(kind)) all_sizes.push_back(sizes);
  std::vector<std::pair<Layout, Layout>> layouts;
  switch (kind) {
    case OpKind::conv3x3_loss:
    case OpKind::conv3x3_loss_backward:
    case OpKind::callable:
      return {};
    case OpKind::permute:
      for (Layout from : {Layout::nchw, Layout::nhwc, Layout::zorder}) {
        for (Layout to : {Layout::nchw, Layout::nhwc, Layout::zorder}) {
          if (from != to) layouts.emplace_back(from, to);
        }
      }
      break;
    case OpKind::conv2x2_forward:
    case OpKind::conv2x2_backward_data:
    case OpKind::conv2x2_backward_weights:
    case OpKind::tconv2x2_forward:
    case OpKind::tconv2x2_backward_data:
    case OpKind::tconv2x2_backward_weights:
    case OpKind::conv2x2_update:
    case OpKind::tconv2x2_update:
      layouts = {{Layout::zorder, Layout::zorder}};
      break;
    case OpKind::copy:
    case OpKind::cast:
    case OpKind::u8_to_float:
    case OpKind::augment:
    case OpKind::conv1x1_forward:
    case OpKind::conv1x1_backward_data:
    case OpKind::conv1x1_backward_weights:
    case OpKind::bias_forward:
    case OpKind::bias_backward:
    case OpKind::relu_forward:
    case OpKind::relu_backward:
    case OpKind::sigmoid_forward:
    case OpKind::sigmoid_backward:
    case OpKind::bias_relu_forward:
    case OpKind::relu_bias_backward:
    case OpKind::conv1x1_update:
      layouts = {{Layout::nhwc, Layout::nhwc}, {Layout::zorder, Layout::zorder}};
      break;
    default:
      layouts = {{Layout::nhwc, Layout::nhwc}};
  }
  std::vector<OpCase> cases;
  for (DType type : storage_types(kind)) {
    for (auto [from, to] : layouts) {
      for (const CaseSizes& sizes : all_sizes) {
        std::vector<OpCase> made{make_case(kind, type, from, sizes, to)};
        if (kind == OpKind::augment) made.push_back(make_plain_augment_case(type, from, sizes));
        if (may_have_own_kernel(kind)) {
          made.push_back(made.front());
          made.back().operation.own_kernel = true;
          made.back().name += " own kernel";
        }
        for (std::size_t i = made.size(); is_product_update(kind) && i-- > 0;) {
          if (made[i].operation.operands.back().name != "copy") continue;
          OpCase alone = made[i];  // an update need not have a copy to write
          alone.name += " without copy";
          alone.operation.operands.pop_back();
          alone.values.pop_back();
          made.push_back(std::move(alone));
        }
        std::move(made.begin(), made.end(), std::back_inserter(cases));
      }
    }
  }
  if (kind == OpKind::conv3x3_forward) {  // the head: bf16 in, logits out
    for (const CaseSizes& sizes : all_sizes) {
      cases.push_back(make_case(kind, DType::bf16, Layout::nhwc, sizes));
      cases.back().name += " logits";
      cases.back().operation.operands[2].desc.dtype = DType::f32;
    }
  }
  return cases;
}

void redraw(OpCase& op_case, std::size_t operand) {
  if (op_case.operation.kind == OpKind::augment && op_case.is_header(operand))
    return draw_augments(op_case, 3);
  if (op_case.is_header(operand)) {
    op_case.header.step += 1;
    op_case.header.learning_rate *= 2;
    // Of the header a penalty reads the count alone.
    const bool penalty = op_case.operation.kind == OpKind::l2_penalty;
    set_count(op_case.header, op_case.header.valid_count + (penalty ? 1 : 0));
    return;
  }
  const Operand& o = op_case.operation.operands.at(operand);
  if (o.name == "labels") {  // each valid label becomes the next class
    for (double& label : op_case.values[operand]) {
      if (label == op_case.operation.ignore_label) continue;
      label = std::fmod(label + 1, static_cast<double>(op_case.sizes.k));
    }
    return;
  }
  if (op_case.is_result(operand)) {
    return set_result(op_case, operand, {41, 37, 1.5});
  }
  if (o.name == "tables") {
    AugmentSpec other = op_case.operation.augment;
    --other.crop_h;
    std::vector<std::uint8_t> tables = augment_tables(other);
    tables.resize(o.desc.bytes());
    op_case.values[operand].assign(tables.begin(), tables.end());
    return;
  }
  op_case.values[operand] = draw(o.desc, op_case.name + o.name + " again");
}

Body host_body(OpKind kind) { return op_info(kind).host; }

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kGuardBytes = 512;  // at least: operands are aligned, so more may follow

/// NaN in bf16, f32 and f64 at any aligned address, and different along the way.
void fill_with_nan(std::byte* begin, std::size_t offset, std::size_t bytes) {
  for (std::size_t i = offset; i < offset + bytes; ++i) {
    begin[i] = i % 2 == 1 ? std::byte{0xFF} : static_cast<std::byte>(0x81 + i / 2 % 0x7E);
  }
}

}  // namespace

OpMemory::OpMemory(const OpCase& op_case, unsigned char poison) : case_(op_case) {
  check_operation(case_.operation);
  const std::size_t workspace = op_info(case_.operation.kind).workspace(case_.operation);
  if (workspace > 0) {  // as a plan appends it
    case_.operation.operands.push_back({static_cast<BufferId>(case_.operation.operands.size()),
                                        byte_desc(workspace), Access::write, "workspace", true});
  }

  std::size_t end = 0;
  const auto add = [&](std::string name, std::size_t bytes, bool written) {
    regions_.push_back({std::move(name), end, bytes, written});
    end += bytes;
  };
  const auto guard = [&](const std::string& name) {
    add("behind " + name, (end + kGuardBytes) / kAlignment * kAlignment + kAlignment - end, false);
  };
  guard("nothing");
  for (const Operand& operand : case_.operation.operands) {
    operand_region_.push_back(regions_.size());
    add(operand.name, operand.desc.bytes(), writes(operand.access));
    guard(operand.name);
    add("undeclared " + std::to_string(operand_region_.size()), kAlignment, false);
  }
  guard("the last buffer");

  memory_.resize(end + kAlignment);
  void* pointer = memory_.data();
  std::size_t space = memory_.size();
  base_ = static_cast<std::byte*>(std::align(kAlignment, end, pointer, space));
  fill_with_nan(base_, 0, end);
  for (std::size_t i = 0; i < operand_region_.size(); ++i) {
    const Operand& operand = case_.operation.operands[i];
    std::byte* start = base_ + regions_[operand_region_[i]].offset;
    if (operand.access == Access::write) {
      std::memset(start, poison, operand.desc.bytes());
    } else if (case_.is_header(i)) {
      // Sample ids stay NaN, and augmentation parameters where the operation is no augment.
      std::memcpy(start, &case_.header, sizeof(BatchHeader));
      std::byte* draws = start + sizeof(BatchHeader) + case_.sizes.n * sizeof(std::int64_t);
      std::copy_n(reinterpret_cast<const std::byte*>(case_.draws.data()),
                  case_.draws.size() * sizeof(AugmentDraw), draws);
    } else {
      const auto bytes = encode(operand.desc, case_.values[i]);
      std::memcpy(start, bytes.data(), bytes.size());
    }
  }
  before_.assign(base_, base_ + end);
}

void OpMemory::run(const Body& body) {
  std::vector<void*> pointers;
  for (std::size_t region : operand_region_) pointers.push_back(base_ + regions_[region].offset);
  body(case_.operation, pointers.data());
}

std::vector<std::byte> OpMemory::bytes(std::size_t operand) const {
  const Region& region = regions_[operand_region_.at(operand)];
  return {base_ + region.offset, base_ + region.offset + region.bytes};
}

Raster OpMemory::values(std::size_t operand) const {
  const auto raw = bytes(operand);
  if (!case_.is_result(operand)) return decode(case_.operation.operands[operand].desc, raw.data());
  StepResult result;
  std::memcpy(&result, raw.data(), sizeof result);
  return {static_cast<double>(result.step), static_cast<double>(result.valid_count), result.loss};
}

std::vector<std::string> OpMemory::trespasses() const {
  std::vector<std::string> changed;
  for (const Region& region : regions_) {
    const bool same =
        std::memcmp(base_ + region.offset, before_.data() + region.offset, region.bytes) == 0;
    if (!region.written && !same) changed.push_back(region.name);
  }
  return changed;
}

std::vector<Raster> run_case(const OpCase& op_case) {
  OpMemory memory(op_case);
  memory.run(host_body(op_case.operation.kind));
  std::vector<Raster> after;
  for (std::size_t i = 0; i < op_case.operation.operands.size(); ++i) {
    after.emplace_back();
    if (writes(op_case.operation.operands[i].access)) after.back() = memory.values(i);
  }
  return after;
}

}  // namespace tandem::test
