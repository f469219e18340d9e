// SPDX-License-Identifier: Apache-2.0
// `tandem augment`: a contact sheet of pictures and of what the augmentation makes of them, with
// the parameters of each under it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <tandem/engine/error.hpp>
#include <tandem/engine/loader.hpp>
#include <tandem/engine/picture_file.hpp>
#include <vector>

#include "augmentation.hpp"
#include "canvas.hpp"
#include "common.hpp"
#include "data.hpp"

namespace tandem::program {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestDefault = 256;  // side of what is made

struct AugmentOptions {
  AugmentChoice augment;
  std::int64_t seed = 0, draws = 4, count = 4, image = 0;
  std::string in, out, force, device = "auto", json;
  bool quiet = false;
};

/// A square picture with a name, and the number that its draws depend on.
struct Original {
  std::string name;
  std::int64_t record = 0, side = 0;
  std::vector<std::uint8_t> pixels;  // [side, side, 3]
};

// --- pictures ---

Original read_original(const fs::path& path, std::int64_t record) {
  const Picture picture = read_picture(path.string());
  Original original;
  original.name = path.filename().string();
  original.record = record;
  original.side = std::min(picture.height, picture.width);
  original.pixels = middle_square(picture, original.side);
  return original;
}

bool has_picture_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

std::vector<Original> from_folder(const std::string& folder, std::int64_t count) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && has_picture_name(entry.path())) paths.push_back(entry.path());
  if (paths.empty())
    throw Error(ErrorCode::data,
                fmt::format("--in {}: there is no JPEG or PNG file in it", folder));
  std::sort(paths.begin(), paths.end());
  paths.resize(std::min(paths.size(), static_cast<std::size_t>(count)));
  std::vector<Original> originals;
  for (const fs::path& path : paths)
    originals.push_back(read_original(path, static_cast<std::int64_t>(originals.size())));
  return originals;
}

std::vector<Original> from_data(const DataChoice& choice, const AugmentOptions& options) {
  DataRequest request;
  request.labels = has_labels(choice, Labels::pictures) ? Labels::pictures : Labels::pixels;
  request.image = options.image == 0 ? kLargestDefault : options.image;
  request.seed = static_cast<std::uint64_t>(options.seed);
  const std::shared_ptr<const Dataset> data = open_data(choice, request);
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(data->label_count()));
  std::vector<Original> originals;
  for (std::int64_t i = 0; i < std::min(options.count, data->epoch_size()); ++i) {
    Original original;
    original.record = data->record(i);
    original.side = data->image();
    original.pixels.resize(static_cast<std::size_t>(3 * original.side * original.side));
    data->sample(i, original.pixels.data(), labels.data());
    original.name = request.labels == Labels::pictures ? data->class_names()[labels[0]]
                                                       : fmt::format("{} {}", data_name(choice), i);
    originals.push_back(std::move(original));
  }
  return originals;
}

std::vector<Original> open_originals(const AugmentOptions& options) {
  std::error_code ignored;
  if (fs::is_directory(options.in, ignored)) return from_folder(options.in, options.count);
  if (fs::exists(options.in, ignored)) return {read_original(options.in, 0)};
  DataChoice choice;
  choice.data = options.in;
  if (!has_labels(choice, Labels::pictures) && !has_labels(choice, Labels::pixels))
    throw Error(
        ErrorCode::data,
        fmt::format("--in {}: there is no file, folder or data set of that name", options.in));
  return from_data(choice, options);
}

// --- draws ---

/// The inverse of to_text().
AugmentDraw parse_draw(const std::string& text) {
  std::istringstream stream(text);
  std::string crop, flip, angle, sigma;
  char comma = 0;
  AugmentDraw draw;
  stream >> crop >> draw.crop_y >> comma >> draw.crop_x >> flip >> draw.flip >> angle >>
      draw.degrees >> sigma >> draw.sigma;
  if (!stream || crop != "crop" || comma != ',' || flip != "flip" || angle != "angle" ||
      sigma != "sigma" || !(stream >> std::ws).eof())
    throw Error(
        ErrorCode::usage,
        fmt::format("--force: '{}' is not allowed; allowed: a draw as it is printed, such as "
                    "'crop 12,40 flip 0 angle -17.25 sigma 0.73'",
                    text));
  return draw;
}

/// One draw an epoch, as training would make them.
std::vector<AugmentDraw> make_draws(const AugmentOptions& options, const Augmentation& settings,
                                    std::int64_t record) {
  if (!options.force.empty()) return {force_augment(settings.spec, parse_draw(options.force))};
  std::vector<AugmentDraw> draws;
  for (std::int64_t epoch = 0; epoch < options.draws; ++epoch)
    draws.push_back(draw_augment(settings.spec, settings.ranges,
                                 static_cast<std::uint64_t>(options.seed),
                                 static_cast<std::uint64_t>(epoch), record));
  return draws;
}

/// One operation on a batch that holds the same picture once a draw.
struct SheetPlan {
  Plan plan;
  BufferId images, header, tables;
};

SheetPlan plan_augment(const AugmentSpec& spec, std::int64_t n) {
  PlanBuilder plan(1, 1, MemoryKind::device);
  const TensorDesc images{DType::u8, Layout::nhwc, n, spec.in_h, spec.in_w, kAugmentChannels};
  const TensorDesc header = byte_desc(batch_header_bytes(n));
  const TensorDesc tables = byte_desc(augment_table_bytes(spec));
  const TensorDesc made{DType::f32, Layout::nhwc, n, spec.out_h, spec.out_w, kAugmentChannels};
  SheetPlan result;
  result.images = plan.add_buffer("images", images, Scope::input);
  result.header = plan.add_buffer("header", header, Scope::input);
  result.tables = plan.add_buffer("tables", tables, Scope::persistent);
  const BufferId y = plan.add_buffer("made", made, Scope::scratch, 0);
  const BufferId copy = plan.add_buffer("result", made, Scope::result);
  plan.begin_stage("augment");
  Operation augment;
  augment.kind = OpKind::augment;
  augment.name = "augment";
  augment.augment = spec;
  augment.operands = {plan.read(result.images, images), plan.read(result.header, header),
                      plan.read(result.tables, tables), plan.write(y, made)};
  plan.add(std::move(augment));
  Operation to_host;
  to_host.kind = OpKind::copy;
  to_host.name = "result";
  to_host.operands = {plan.read(y, made), plan.write(copy, made)};
  plan.add(std::move(to_host));
  result.plan = std::move(plan).build();
  return result;
}

/// What the draws make of the picture: [draws, out, out, 3].
std::vector<std::uint8_t> apply(Backend& backend, AugmentSpec spec, const Original& original,
                                const std::vector<AugmentDraw>& draws) {
  spec.scale = 1;  // bytes in, bytes out
  const auto n = static_cast<std::int64_t>(draws.size());
  std::vector<std::uint8_t> images;
  for (std::int64_t i = 0; i < n; ++i)
    images.insert(images.end(), original.pixels.begin(), original.pixels.end());
  // 64-bit words, as the header and the sample ids behind it want their alignment.
  std::vector<std::uint64_t> header((batch_header_bytes(n) + 7) / 8);
  auto* const batch = reinterpret_cast<BatchHeader*>(header.data());
  batch->samples = batch->capacity = static_cast<std::int32_t>(n);
  std::copy(draws.begin(), draws.end(), augment_draws(batch));
  std::vector<std::uint64_t> tables((augment_table_bytes(spec) + 7) / 8);
  fill_augment_tables(spec, tables.data());

  std::vector<std::uint8_t> made;
  const auto values = static_cast<std::size_t>(n * spec.out_h * spec.out_w * kAugmentChannels);
  const SheetPlan plan = plan_augment(spec, n);
  Scheduler scheduler(backend, plan.plan, {}, [&](std::uint64_t, const void* result) {
    const auto* const floats = static_cast<const float*>(result);
    std::transform(floats, floats + values, std::back_inserter(made), [](float value) {
      return static_cast<std::uint8_t>(std::clamp(std::rint(value), 0.0f, 255.0f));
    });
  });
  scheduler.write(plan.images, images.data());
  scheduler.write(plan.header, header.data());
  scheduler.write(plan.tables, tables.data());
  scheduler.push(0, 0);
  scheduler.drain();
  return made;
}

// --- sheet ---

/// What has been made of one picture.
struct Row {
  Original original;
  std::vector<AugmentDraw> draws;
  std::vector<std::uint8_t> made;
  std::int64_t side = 0, crop = 0;  // of what is made, and of the crop
};

/// Four lines, each a name and a value.
std::vector<std::string> caption(const AugmentDraw& draw) {
  std::istringstream words(to_text(draw));
  std::vector<std::string> lines;
  for (std::string name, value; words >> name >> value;) lines.push_back(name + " " + value);
  return lines;
}

/// The original, scaled down where it is larger than `most`, in whole pixels.
Original shown(const Original& original, std::int64_t most) {
  if (original.side <= most) return original;
  Original small = original;
  small.side = most;
  small.pixels = middle_square({original.side, original.side, original.pixels}, most);
  return small;
}

/// Rows of cells: the original, then its draws.
class Sheet {
 public:
  explicit Sheet(const std::vector<Row>& rows)
      : side_(displayed_side(rows)),
        cell_(std::max(side_, text_width(rows))),
        canvas_(kApart + static_cast<std::int64_t>(rows[0].draws.size() + 1) * (cell_ + kApart),
                kApart + static_cast<std::int64_t>(rows.size()) * row_height()) {
    for (std::size_t r = 0; r < rows.size(); ++r)
      add(kApart + static_cast<std::int64_t>(r) * row_height(), rows[r]);
  }

  void write(const std::string& path) const { canvas_.write(path); }

 private:
  static constexpr std::int64_t kApart = 24, kUnderPicture = 8;
  static constexpr std::int64_t kTile = 192;  // small pictures are enlarged up to this side
  static constexpr std::int64_t kTextLines = 4;

  static std::int64_t scale_of(std::int64_t side) {
    return std::max<std::int64_t>(1, kTile / side);
  }
  static std::int64_t displayed_side(const std::vector<Row>& rows) {
    std::int64_t side = 1;
    for (const Row& row : rows) side = std::max(side, row.side * scale_of(row.side));
    return side;
  }
  /// Of the longest line under a draw.
  static std::int64_t text_width(const std::vector<Row>& rows) {
    std::size_t longest = 0;
    for (const Row& row : rows)
      for (const AugmentDraw& draw : row.draws)
        for (const std::string& line : caption(draw)) longest = std::max(longest, line.size());
    return static_cast<std::int64_t>(longest) * Canvas::kCharacter;
  }
  std::int64_t row_height() const {
    return side_ + kUnderPicture + kTextLines * Canvas::kLine + kApart;
  }

  void add(std::int64_t top, const Row& row) {
    const Original original = shown(row.original, side_);
    const std::int64_t side = row.original.side;
    cell(0, top, original.side, original.pixels.data(),
         {original.name, fmt::format("{} x {}", side, side),
          fmt::format("crop {} x {}", row.crop, row.crop),
          fmt::format("to {} x {}", row.side, row.side)});
    for (std::size_t d = 0; d < row.draws.size(); ++d)
      cell(static_cast<std::int64_t>(d) + 1, top, row.side,
           row.made.data() + static_cast<std::int64_t>(d) * 3 * row.side * row.side,
           caption(row.draws[d]));
  }

  void cell(std::int64_t column, std::int64_t top, std::int64_t side, const std::uint8_t* pixels,
            const std::vector<std::string>& lines) {
    const std::int64_t left = kApart + column * (cell_ + kApart);
    const auto characters = static_cast<std::size_t>(cell_ / Canvas::kCharacter);
    canvas_.square(left, top, side, side_ / side, [=](std::size_t i) {
      return Colour{pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]};
    });
    std::int64_t line_top = top + side_ + kUnderPicture;
    for (const std::string& line : lines) {
      canvas_.text(left, line_top, line.substr(0, characters));
      line_top += Canvas::kLine;
    }
  }

  std::int64_t side_, cell_;  // of the largest picture as shown; of a cell with its text
  Canvas canvas_;
};

void run(AugmentOptions& options, const Options& declared) {
  const Device device = open_device(options.device);
  if (fs::path(options.out).extension() != ".png")
    throw Error(ErrorCode::usage,
                fmt::format("--out {} is not allowed; allowed: FILE.png", options.out));
  check_replaceable("--out", options.out);
  check_json(options.json);
  if (!options.force.empty()) parse_draw(options.force);
  std::vector<Original> originals = open_originals(options);
  std::vector<Augmentation> settings;
  for (const Original& original : originals) {
    AugmentChoice choice = options.augment;
    const std::int64_t side =
        options.image != 0 ? options.image : std::min(original.side, kLargestDefault);
    settings.push_back(augmentation(choice, options.in.substr(0, options.in.find(':')),
                                    original.side, original.side, side));
    make_draws(options, settings.back(), original.record);  // throws where one does not fit
  }

  announce(device, 1, options.quiet);
  const std::unique_ptr<Backend> backend = make_backend(device);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < originals.size(); ++i) {
    const AugmentSpec& spec = settings[i].spec;
    Row row;
    row.draws = make_draws(options, settings[i], originals[i].record);
    row.made = apply(*backend, spec, originals[i], row.draws);
    row.side = spec.out_h;
    row.crop = spec.crop_h;
    row.original = std::move(originals[i]);
    rows.push_back(std::move(row));
  }
  Sheet(rows).write(options.out);

  Json json;
  json["schema"] = 1;
  json["environment"] = environment();
  json["device"] = device.name;
  json["picture"] = options.out;
  json["pictures"] = Json::array();
  for (const Row& row : rows) {
    Json picture;
    picture["name"] = row.original.name;
    picture["record"] = row.original.record;
    picture["draws"] = Json::array();
    for (const AugmentDraw& draw : row.draws) picture["draws"].push_back(to_text(draw));
    json["pictures"].push_back(picture);
  }
  json["config"] = declared.effective();
  write_json(options.json, json);
  if (options.json == "-") return;
  for (const Row& row : rows) {
    fmt::print("{}, {} x {}\n", printable(row.original.name), row.original.side, row.original.side);
    for (const AugmentDraw& draw : row.draws) fmt::print("  {}\n", to_text(draw));
  }
  fmt::print("{} in {}\n", count_of(static_cast<std::int64_t>(rows.size()), "picture"),
             printable(options.out));
}

}  // namespace

void add_augment(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand(
      "augment", "A sheet of pictures and of what the augmentation makes of them");
  auto values = std::make_shared<AugmentOptions>();
  auto options = std::make_shared<Options>(*app);
  AugmentOptions& o = *values;
  options
      ->text("--in", o.in, "PICTURES",
             "a JPEG or PNG file, a folder of them, or a data set as --data of train names it")
      ->required();
  options->text("--out", o.out, "FILE.png", "the sheet")->required();
  options->number("--seed", o.seed, 0, INT64_MAX, "of the draws");
  options->number("--draws", o.draws, 1, 16, "draws a picture");
  options->number("--count", o.count, 1, 64, "pictures");
  options->number("--image", o.image, 1, 1024, "side of what is made, in pixels")
      ->default_str("the picture's, at most 256");
  options->text("--force", o.force, "DRAW", "a draw as it is printed, in place of random ones");
  add_frame_options(*options, o.augment);
  add_random_options(*options, o.augment);
  add_device_option(*options, o.device);
  options->text("--json", o.json, "FILE|-", "the draws, as JSON");
  options->flag("--quiet", o.quiet, "no notes on standard error");
  app->callback(
      [&selected, values, options] { selected = [values, options] { run(*values, *options); }; });
}

}  // namespace tandem::program
