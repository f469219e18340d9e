// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tandem/engine/error.hpp>
#include <tandem/engine/file_bytes.hpp>
#include <tandem/models/model_json.hpp>
#include <tandem/models/segmenter.hpp>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kSchema = 1, kMostImage = 8192, kMostChannels = 65536;
constexpr std::int64_t kMostFeatures = std::int64_t{1} << 28;
constexpr double kMostL2 = 1000;
constexpr std::size_t kLongestName = 100, kMostLayers = 1000;
constexpr std::size_t kMaxNesting = 3;  // file { part [ layer {

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("{}: {}", source, what));
}

/// A value of the file, fit for one line of a message: escaped, and cut if it is long.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

// --- text -> JSON

/// Where the parser is, and which keys the open objects have had.
class Places {
 public:
  void open() { levels_.emplace_back(); }
  void close() { levels_.pop_back(); }
  std::size_t depth() const { return levels_.size(); }
  /// False if the open object has the key already.
  bool key(const std::string& name) {
    const bool plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
    levels_.back().at = plain ? name : shown(name);
    return levels_.back().keys.insert(name).second;
  }
  /// A value begins: in a list, the next one.
  void value() {
    if (levels_.empty() || !levels_.back().keys.empty()) return;
    levels_.back().at = fmt::format("[{}]", levels_.back().next++);
  }
  /// "trained[3].kernel"
  std::string text() const {
    std::string place;
    for (const Level& level : levels_) {
      if (!place.empty() && !level.at.empty() && level.at[0] != '[') place += '.';
      place += level.at;
    }
    return place;
  }

 private:
  struct Level {
    std::string at;
    std::set<std::string> keys;  // none: a list, or an object before its first key
    int next = 0;
  };
  std::vector<Level> levels_;
};

/// "line 3, column 7" of a byte, counted from 1.
std::string position(const std::string& text, std::size_t byte) {
  const std::string before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const auto newline = before.rfind('\n');
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     before.size() - (newline == std::string::npos ? 0 : newline + 1) + 1);
}

/// Refuses what the JSON library would accept: a field given twice, of which it keeps one, and
/// nesting that no model has.
json parse(const std::string& text, const std::string& source) {
  Places places;
  const auto check = [&](int, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      places.value();
      if (places.depth() == kMaxNesting)
        fail(source, fmt::format("{}: nested too deeply", places.text()));
      places.open();
    } else if (event == Event::object_end || event == Event::array_end) {
      places.close();
    } else if (event == Event::value) {
      places.value();
    } else if (event == Event::key && !places.key(value.get_ref<const std::string&>())) {
      fail(source, fmt::format("{}: is given twice", places.text()));
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::parse_error& error) {
    fail(source, fmt::format("is not JSON: error at {}", position(text, error.byte)));
  } catch (const json::out_of_range&) {
    fail(source, "holds a number that is too large");
  }
}

// --- JSON -> layers

/// An object of the file whose fields are read one by one.
class Fields {
 public:
  Fields(const json& object, std::string place, const std::string& source)
      : object_(object), place_(std::move(place)), source_(source) {
    if (!object.is_object()) refuse("", fmt::format("is {}; an object is needed", shown(object)));
  }

  [[noreturn]] void refuse(const std::string& field, const std::string& what) const {
    const std::string dot = place_.empty() || field.empty() ? "" : ".";
    const std::string place = place_ + dot + field;
    fail(source_, place.empty() ? what : fmt::format("{}: {}", place, what));
  }

  bool has(const char* field) const { return object_.contains(field); }

  std::int64_t number(const char* field, std::int64_t least, std::int64_t most) const {
    const json& value = at(field);
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                          : value.is_number_integer();
    if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
      refuse(field,
             fmt::format("is {}; allowed: whole numbers from {} to {}", shown(value), least, most));
    return value.get<std::int64_t>();
  }
  double real(const char* field, double least, double most) const {
    const json& value = at(field);
    // A NaN is no JSON.
    if (!value.is_number() || value.get<double>() < least || value.get<double>() > most)
      refuse(field,
             fmt::format("is {}; allowed: numbers from {} to {}", shown(value), least, most));
    return value.get<double>();
  }
  int small(const char* field, int least, int most) const {
    return static_cast<int>(number(field, least, most));
  }
  std::string text(const char* field) const {
    const json& value = at(field);
    if (!value.is_string()) refuse(field, fmt::format("is {}; a text is needed", shown(value)));
    return value.get<std::string>();
  }
  const json& list(const char* field) const {
    const json& value = at(field);
    if (!value.is_array()) refuse(field, fmt::format("is {}; a list is needed", shown(value)));
    return value;
  }
  /// Refuses fields that are none of these.
  void only(std::initializer_list<const char*> names) const {
    for (const auto& item : object_.items()) {
      const auto is = [&](const char* name) { return item.key() == name; };
      if (!std::any_of(names.begin(), names.end(), is))
        fail(source_,
             fmt::format("{}: no such field: {}; allowed: {}", place_.empty() ? "the file" : place_,
                         shown(item.key()), fmt::join(names, ", ")));
    }
  }

 private:
  const json& at(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end()) refuse(field, "is missing");
    return *found;
  }

  const json& object_;
  std::string place_;
  const std::string& source_;
};

/// Runs the body; an Error about "layer 3: ..." becomes one about "trained[3]: ...".
template <class Body>
auto at_layers(const std::string& part, const std::string& source, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    std::string what = error.what();
    const std::string prefix = "layer ";
    const std::size_t colon = what.find(": ");
    if (error.code() != ErrorCode::usage || what.rfind(prefix, 0) != 0 ||
        colon == std::string::npos)
      throw;
    const std::string number = what.substr(prefix.size(), colon - prefix.size());
    fail(source, fmt::format("{}[{}]{}", part, number, what.substr(colon)));
  }
}

/// Appends the layer that an object describes. Checks each field; what arrives is checked later.
void append(Sequential& model, const Fields& fields) {
  const auto channels = [&](const char* name) { return fields.number(name, 1, kMostChannels); };
  if (fields.has("from")) {
    const int index = static_cast<int>(model.layers().size());
    if (index == 0) fields.refuse("from", "the first layer reads the part's input");
    model.from(fields.small("from", 0, index - 1));
  }
  const std::string kind = fields.text("layer");
  if (kind == "conv") {
    fields.only(
        {"layer", "in_channels", "out_channels", "kernel", "stride", "padding", "l2", "from"});
    channels("in_channels");
    const int kernel = fields.small("kernel", 1, 3), stride = fields.small("stride", 1, 2);
    model.conv(channels("out_channels"), kernel, stride, fields.small("padding", 0, 1));
  } else if (kind == "transposed_conv") {
    fields.only({"layer", "in_channels", "out_channels", "kernel", "stride", "l2", "from"});
    channels("in_channels");
    const int kernel = fields.small("kernel", 2, 2);
    model.transposed_conv(channels("out_channels"), kernel, fields.small("stride", 2, 2));
  } else if (kind == "relu") {
    fields.only({"layer", "from"});
    model.relu();
  } else if (kind == "sigmoid") {
    fields.only({"layer", "from"});
    model.sigmoid();
  } else if (kind == "flatten") {
    fields.only({"layer", "from"});
    model.flatten();
  } else if (kind == "linear") {
    fields.only({"layer", "in_features", "out_features", "l2", "from"});
    const std::int64_t in = fields.number("in_features", 1, kMostFeatures);
    model.linear(in, channels("out_features"));
  } else {
    fields.refuse("layer", fmt::format("is {}; allowed: conv, transposed_conv, relu, sigmoid, "
                                       "flatten, linear",
                                       shown(kind)));
  }
  if (fields.has("l2")) model.l2(fields.real("l2", 0, kMostL2));
}

/// The layers of a part for a picture of that size, which becomes that of its result.
Sequential read_part(const Fields& file, const char* part, const std::string& source,
                     PictureSize& picture) {
  return at_layers(part, source, [&] {
    const json& list = file.list(part);
    if (list.size() > kMostLayers)
      file.refuse(part,
                  fmt::format("has {} layers; allowed: at most {}", list.size(), kMostLayers));
    Sequential model(picture.channels);
    std::vector<PictureSize> sizes;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Fields fields(list[i], fmt::format("{}[{}]", part, i), source);
      append(model, fields);
      if (fields.has("l2") && part == std::string("frozen"))
        fields.refuse("l2", "the part is not trained, and so has no loss to add to");
      const Layer& layer = model.layers().back();
      const char* in = layer.kind == LayerKind::linear ? "in_features" : "in_channels";
      if (fields.has(in)) {
        const PictureSize& from =
            i == 0 ? picture : sizes[static_cast<std::size_t>(layer.input + 1)];
        const std::int64_t stated = fields.number(in, 1, kMostFeatures);
        const bool one_pixel = from.height * from.width == 1;
        if (stated != from.channels)
          fields.refuse(
              in, fmt::format("is {}; {} arrive", stated,
                              one_pixel ? std::to_string(from.channels)
                                        : fmt::format("{} channels of {} x {} pixels",
                                                      from.channels, from.height, from.width)));
      }
      sizes = picture_sizes(model, picture.height, picture.width);
    }
    if (!sizes.empty()) picture = sizes.back();
    return model;
  });
}

// --- layers -> JSON

ordered_json to_object(const Layer& layer, int index) {
  ordered_json object;
  switch (layer.kind) {
    case LayerKind::conv:
    case LayerKind::transposed_conv: {
      const bool transposed = layer.kind == LayerKind::transposed_conv;
      object = {{"layer", transposed ? "transposed_conv" : "conv"},
                {"in_channels", layer.in_channels},
                {"out_channels", layer.out_channels},
                {"kernel", layer.kernel},
                {"stride", layer.stride}};
      if (!transposed) object["padding"] = layer.padding;
      break;
    }
    case LayerKind::relu:
      object = {{"layer", "relu"}};
      break;
    case LayerKind::sigmoid:
      object = {{"layer", "sigmoid"}};
      break;
    case LayerKind::flatten:
      object = {{"layer", "flatten"}};
      break;
    case LayerKind::linear:
      object = {{"layer", "linear"},
                {"in_features", layer.in_channels},
                {"out_features", layer.out_channels}};
      break;
  }
  if (layer.l2 != 0) object["l2"] = layer.l2;
  if (layer.input != index - 1) object["from"] = layer.input;
  return object;
}

/// A list with a layer a line.
std::string to_list(const Sequential& model) {
  std::string text;
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    text += i == 0 ? "\n    " : ",\n    ";
    text += to_object(model.layers()[i], static_cast<int>(i)).dump();
  }
  return text.empty() ? "[]" : "[" + text + "\n  ]";
}

}  // namespace

PictureSize input_size(const Model& model) noexcept {
  if (model.features > 0) return {model.features, 1, 1};
  return {3, model.image, model.image};
}

Model model_from_json(const std::string& text, const std::string& source) {
  const json root = parse(text, source);
  const Fields file(root, "", source);
  file.number("schema", kSchema, kSchema);
  file.only({"schema", "name", "image", "features", "frozen", "trained"});

  Model model;
  model.name = file.text("name");
  if (model.name.empty() || model.name.size() > kLongestName)
    file.refuse("name",
                fmt::format("has {} bytes; allowed: 1 .. {}", model.name.size(), kLongestName));
  if (file.has("features")) {
    if (file.has("image"))
      file.refuse("features", "a network reads pictures or rows; allowed: image or features");
    model.features = file.number("features", 1, kMostChannels);
  } else {
    model.image = file.number("image", 1, kMostImage);
  }
  PictureSize picture = input_size(model);
  model.frozen = read_part(file, "frozen", source, picture);
  model.trained = read_part(file, "trained", source, picture);
  if (model.trained.layers().empty()) file.refuse("trained", "has no layers; allowed: 1 or more");
  if (model.trained.ends_in_sigmoid() && model.trained.layers().size() == 1)
    file.refuse("trained[0]", "a sigmoid alone has nothing to train; allowed: layers before it");
  try {
    check_classes(picture.channels);
  } catch (const Error& error) {
    file.refuse("trained", fmt::format("its last layer: {}", error.what()));
  }
  return model;
}

Model read_model(const std::string& path) {
  const std::vector<std::uint8_t> bytes = read_file_bytes(path);
  return model_from_json({bytes.begin(), bytes.end()}, path);
}

std::string to_json(const Model& model) {
  const bool rows = model.features > 0;
  return fmt::format(
      "{{\n  \"schema\": {},\n  \"name\": {},\n  \"{}\": {},\n  \"frozen\": {},\n"
      "  \"trained\": {}\n}}\n",
      kSchema, json(model.name).dump(-1, ' ', false, json::error_handler_t::replace),
      rows ? "features" : "image", rows ? model.features : model.image, to_list(model.frozen),
      to_list(model.trained));
}

}  // namespace tandem
