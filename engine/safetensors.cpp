// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <tandem/engine/atomic_file.hpp>
#include <tandem/engine/error.hpp>
#include <tandem/engine/safetensors.hpp>
#include <tandem/kernels/bf16.hpp>
#include <tuple>
#include <utility>

namespace tandem {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors are copied as bytes");

constexpr std::uint64_t kMaxHeader = 100'000'000;  // as in the format's reference reader
constexpr std::size_t kMaxNesting = 3;             // header { tensor { shape [

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("safetensors file {}: {}", path, what));
}

/// Text from a file, fit for one line of a message: escaped, and cut if it is long.
std::string quoted(const std::string& text) {
  return json(text.size() > 80 ? text.substr(0, 80) + "..." : text)
      .dump(-1, ' ', true, json::error_handler_t::replace);
}

/// a * b, or nothing if it does not fit.
std::optional<std::uint64_t> multiply(std::uint64_t a, std::uint64_t b) {
  if (b != 0 && a > std::numeric_limits<std::int64_t>::max() / b) return std::nullopt;
  return a * b;
}

/// Parses the header. Refuses what the JSON library would accept: a name given twice, of which it
/// keeps one, and nesting that no header has.
json parse_header(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;  // of every object or array that is open
  const auto check = [&](int, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (keys.size() == kMaxNesting) fail(path, "header is nested too deeply");
      keys.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) fail(path, fmt::format("{} occurs twice", quoted(key)));
    }
    return true;
  };
  try {
    json header = json::parse(text, check);
    if (!header.is_object()) fail(path, "header is not a JSON object");
    return header;
  } catch (const json::parse_error& error) {
    fail(path, fmt::format("header is not JSON (error near its byte {})", error.byte));
  } catch (const json::out_of_range&) {
    fail(path, "header holds a number that is too large");
  }
}

enum class Type { f32, bf16, f16 };

/// A tensor as its header entry describes it; the entry has been checked against itself.
struct Entry {
  std::string name;
  Type type = Type::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0, begin = 0, end = 0;
};

Entry parse_entry(const std::string& path, const std::string& name, const json& value) {
  const auto refuse = [&](const std::string& what) {
    fail(path, fmt::format("tensor {}: {}", quoted(name), what));
  };
  const auto is_size = [](const json& number) {
    return number.is_number_unsigned() &&
           number.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
  };
  if (!value.is_object()) refuse("its entry is not a JSON object");
  const auto field = [&](const char* key) -> const json& {
    const auto found = value.find(key);
    if (found == value.end()) refuse(fmt::format("no {}", key));
    return *found;
  };
  Entry entry;
  entry.name = name;

  const json& type = field("dtype");
  if (!type.is_string()) refuse("dtype is not a string");
  if (type == "F32") {
    entry.type = Type::f32;
  } else if (type == "BF16") {
    entry.type = Type::bf16;
  } else if (type == "F16") {
    entry.type = Type::f16;
  } else {
    refuse(fmt::format("dtype {}; allowed are F32, BF16, F16", quoted(type.get<std::string>())));
  }

  const json& shape = field("shape");
  if (!shape.is_array()) refuse("shape is not a list");
  std::optional<std::uint64_t> elements = 1;
  for (const json& size : shape) {
    if (!is_size(size)) refuse("shape holds something else than sizes of 0 to 2^63 - 1");
    entry.shape.push_back(size.get<std::int64_t>());
    elements = multiply(*elements, size.get<std::uint64_t>());
    if (!elements) refuse("shape has more than 2^63 - 1 elements");
  }
  entry.elements = *elements;
  const auto bytes = multiply(entry.elements, entry.type == Type::f32 ? 4 : 2);
  if (!bytes) refuse("shape needs more than 2^63 - 1 bytes");

  const json& offsets = field("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !is_size(offsets[0]) || !is_size(offsets[1])) {
    refuse("data_offsets is not a pair of sizes of 0 to 2^63 - 1");
  }
  entry.begin = offsets[0].get<std::uint64_t>();
  entry.end = offsets[1].get<std::uint64_t>();
  if (entry.begin > entry.end || entry.end - entry.begin != *bytes) {
    refuse(fmt::format("data_offsets {} to {} do not span the {} bytes of its shape", entry.begin,
                       entry.end, *bytes));
  }
  return entry;
}

float widen_bf16(std::uint16_t bits) { return static_cast<float>(std::bit_cast<bf16>(bits)); }

float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} >> 15 << 31;
  const std::uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24, exact in fp32
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace

std::vector<NamedTensor> read_safetensors(const std::string& path) {
  std::error_code error;
  if (const auto status = std::filesystem::status(path, error);
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(path, "not a regular file");
  }
  const std::uint64_t file_size = std::filesystem::file_size(path, error);
  if (error) fail(path, error.message());
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, std::generic_category().message(errno));
  const auto read = [&](void* target, std::uint64_t bytes) {
    file.read(static_cast<char*>(target), static_cast<std::streamsize>(bytes));
    if (!file) fail(path, "it became shorter while it was read, or reading failed");
  };

  if (file_size < 8)
    fail(path, fmt::format("truncated: {} bytes, at least 8 are needed", file_size));
  std::uint64_t header_bytes = 0;
  read(&header_bytes, 8);
  if (header_bytes > kMaxHeader) {
    fail(path, fmt::format("header of {} bytes; at most {} are allowed", header_bytes, kMaxHeader));
  }
  if (header_bytes > file_size - 8) {
    fail(path,
         fmt::format("truncated: header of {} bytes in a file of {}", header_bytes, file_size));
  }
  std::string text(header_bytes, '\0');
  read(text.data(), header_bytes);
  const json header = parse_header(path, text);

  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      const bool strings =
          value.is_object() &&
          std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_string(); });
      if (!strings) fail(path, "__metadata__ is not an object of strings");
    } else {
      entries.push_back(parse_entry(path, name, value));
    }
  }

  // In order of offsets the tensors must follow one another without gap or overlap, to the end.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  const std::uint64_t data_bytes = file_size - 8 - header_bytes;
  std::uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      fail(path,
           fmt::format("tensor {} begins at {}, {} the tensor before it, which ends at {}",
                       quoted(entry.name), entry.begin,
                       entry.begin < position ? "overlapping" : "leaving a gap after", position));
    }
    if (entry.end > data_bytes) {
      fail(path, fmt::format("truncated: tensor {} ends at {}, the data at {}", quoted(entry.name),
                             entry.end, data_bytes));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    fail(path, fmt::format("{} bytes follow the last tensor", data_bytes - position));
  }

  std::vector<NamedTensor> tensors;
  std::vector<std::uint16_t> narrow;
  for (Entry& entry : entries) {
    NamedTensor tensor{std::move(entry.name), std::move(entry.shape), {}};
    tensor.data.resize(entry.elements);
    if (entry.type == Type::f32) {
      read(tensor.data.data(), entry.elements * 4);
    } else {
      narrow.resize(entry.elements);
      read(narrow.data(), entry.elements * 2);
      std::transform(narrow.begin(), narrow.end(), tensor.data.begin(),
                     entry.type == Type::bf16 ? widen_bf16 : widen_f16);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  const auto refuse = [&](const NamedTensor& tensor, const std::string& what) {
    throw Error(ErrorCode::data,
                fmt::format("cannot write {}: tensor {} {}", path, quoted(tensor.name), what));
  };
  std::string header = "{";
  std::set<std::string> names;
  std::uint64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == "__metadata__") refuse(tensor, "has a reserved name");
    if (!names.insert(tensor.name).second) refuse(tensor, "occurs twice");
    std::optional<std::uint64_t> elements = 1;
    for (const std::int64_t size : tensor.shape) {
      if (size < 0) refuse(tensor, fmt::format("has a negative size {}", size));
      elements = multiply(*elements, static_cast<std::uint64_t>(size));
      if (!elements) refuse(tensor, "has more than 2^63 - 1 elements");
    }
    if (*elements != tensor.data.size()) {
      refuse(tensor, fmt::format("has {} values, its shape {}", tensor.data.size(), *elements));
    }
    std::string name;
    try {
      name = json(tensor.name).dump();
    } catch (const json::exception&) {
      refuse(tensor, "has a name that is not UTF-8");
    }
    const std::uint64_t end = offset + *elements * 4;
    header +=
        fmt::format(R"({}{}:{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                    header.size() == 1 ? "" : ",", name, fmt::join(tensor.shape, ","), offset, end);
    offset = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = header.size();

  AtomicFile file(path);
  file.write(&header_bytes, 8);
  file.write(header.data(), header.size());
  for (const NamedTensor& tensor : tensors) {
    file.write(tensor.data.data(), tensor.data.size() * sizeof(float));
  }
  file.commit();
}

}  // namespace tandem
