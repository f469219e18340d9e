// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <atomic>
#include <tandem/engine/profile_source.hpp>
#include <tandem/engine/registry.hpp>

namespace tandem {
namespace {

/// "images r u8 nhwc 4x32x32x3, x w f32 nhwc 4x32x32x3": every operand, as it is accessed.
std::string shapes_of(const Operation& operation) {
  std::string text;
  for (const Operand& operand : operation.operands)
    text += fmt::format("{}{} {}{} {}", text.empty() ? "" : ", ", operand.name,
                        reads(operand.access) ? "r" : "", writes(operand.access) ? "w" : "",
                        to_string(operand.desc));
  return text;
}

class HostProfileSource final : public ProfileSource {
 public:
  HostProfileSource(Recorder& recorder, bool shapes) : recorder_(recorder), shapes_(shapes) {}

  const char* name() const noexcept override { return "host"; }
  void start() override { recording_.store(true, std::memory_order_relaxed); }
  void stop() override { recording_.store(false, std::memory_order_relaxed); }

  int stream_created(std::string_view name, void*) override { return recorder_.lane(name); }

  std::uint64_t begin(int, const BoundOperation&) noexcept override {
    return recording_.load(std::memory_order_relaxed) ? profile_clock() : 0;
  }

  void end(int stream, const BoundOperation& bound, std::uint64_t begun) noexcept override {
    if (begun == 0) return;
    const std::uint64_t now = profile_clock();
    try {
      Record record = describe(bound, shapes_, recorder_);
      record.begin = begun;
      record.end = now;
      record.lane = stream;
      recorder_.add(record);
    } catch (const std::bad_alloc&) {
      recorder_.drop(1);
    }
  }

 private:
  Recorder& recorder_;
  const bool shapes_;
  std::atomic<bool> recording_{false};
};

}  // namespace

std::string path_of(const char* stage, const Operation& operation) {
  return fmt::format("{}/{}", stage, operation.name);
}

Record describe(const BoundOperation& bound, bool shapes, Recorder& recorder) {
  const Operation& operation = *bound.operation;
  Record record;
  record.kind = operation.kind == OpKind::copy ? RecordKind::copy : RecordKind::kernel;
  record.name = recorder.text(operation.kind == OpKind::callable ? operation.name
                                                                 : op_info(operation.kind).name);
  record.path = recorder.text(path_of(bound.stage, operation));
  if (shapes) record.shapes = recorder.text(shapes_of(operation));
  record.stage = recorder.stage(bound.stage);
  record.step = bound.step;
  if (record.kind == RecordKind::copy) record.bytes = operation.operands.front().desc.bytes();
  return record;
}

std::unique_ptr<ProfileSource> make_host_profile_source(Recorder& recorder, bool shapes) {
  return std::make_unique<HostProfileSource>(recorder, shapes);
}

}  // namespace tandem
