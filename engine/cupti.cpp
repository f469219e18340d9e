// SPDX-License-Identifier: Apache-2.0
#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <tandem/engine/cupti.hpp>
#include <tandem/engine/error.hpp>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tandem {
namespace {

namespace layout = cupti_layout;

constexpr int kKinds[] = {layout::kExternalId, layout::kRuntimeCall, layout::kDriverCall,
                          layout::kKernel,     layout::kMemcpy,      layout::kMemset};
constexpr std::size_t kBufferBytes = std::size_t{1} << 20, kBufferAlignment = 8;
constexpr std::uint32_t kForced = 1;                  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr int kDriverDomain = 1, kRuntimeDomain = 2;  // of call_name

template <class T>
T field(const void* record, std::size_t at) {
  T value;
  std::memcpy(&value, static_cast<const char*>(record) + at, sizeof value);
  return value;
}

/// What CUPTI told, until all is there.
struct Work {
  RecordKind kind = RecordKind::kernel;
  std::uint64_t begin = 0, end = 0, bytes = 0, blocks = 0;
  std::uint32_t stream = 0, correlation = 0;
  TextId name = 0;
};
struct Call {
  std::uint64_t begin = 0, end = 0;
  std::uint32_t id = 0, correlation = 0;
  bool runtime = false;
};

class Source final : public ProfileSource {
 public:
  Source(const CuptiFunctions& cupti, Recorder& recorder, bool shapes)
      : cupti_(cupti), recorder_(recorder), shapes_(shapes) {}

  ~Source() override {
    if (recording_.exchange(false)) {  // nobody called stop(): the next source gets none of it
      cupti_.flush(kForced);
      disable();
    }
    if (subscriber_ != nullptr) cupti_.unsubscribe(subscriber_);
    // A buffer may be handed over in a thread of CUPTI's at any time, also now. Not before the call
    // above: that may wait for such a thread, which would wait for this one.
    const std::lock_guard lock(reading);
    if (active == this) active = nullptr;
  }

  /// Why it cannot be used, or nothing.
  std::string open() {
    if (std::getenv("CUDA_INJECTION64_PATH") != nullptr)
      return "another tool uses it (CUDA_INJECTION64_PATH is set)";
    {
      const std::lock_guard lock(reading);
      if (active != nullptr) return "it is in use by this process";
      active = this;
    }
    // Also how another tool is found out about: there is room for one subscriber.
    std::string reason =
        refusal("cuptiSubscribe", cupti_.subscribe(&subscriber_, as_pointer(ignore), nullptr));
    if (!reason.empty()) {
      subscriber_ = nullptr;
      return reason;
    }
    if (reason = refusal("cuptiActivityRegisterTimestampCallback", cupti_.clock(profile_clock));
        !reason.empty())
      return reason;
    if (reason = refusal("cuptiActivityRegisterCallbacks",
                         cupti_.callbacks(request_buffer, buffer_full));
        !reason.empty())
      return reason;
    reason = enable();
    disable();
    return reason;
  }

  const char* name() const noexcept override { return "cupti"; }

  void start() override {
    if (const std::string reason = enable(); !reason.empty()) {
      disable();
      throw Error(ErrorCode::run_failed, "CUPTI: " + reason);
    }
    recording_.store(true, std::memory_order_relaxed);
  }

  void stop() override {
    recording_.store(false, std::memory_order_relaxed);
    const std::string reason = refusal("cuptiActivityFlushAll", cupti_.flush(kForced));
    disable();
    if (!reason.empty()) throw Error(ErrorCode::run_failed, "CUPTI: " + reason);
    hand_over();
  }

  int stream_created(std::string_view name, void*) override { return recorder_.lane(name); }

  std::uint64_t begin(int stream, const BoundOperation& bound) noexcept override {
    if (!recording_.load(std::memory_order_relaxed)) return 0;
    try {
      Record record = describe(bound, shapes_, recorder_);
      record.lane = stream;
      const std::lock_guard lock(mutex_);
      issued_.push_back(record);
      const std::uint64_t id = issued_.size();
      return cupti_.push(layout::kOurIds, id) == 0 ? id : 0;
    } catch (const std::bad_alloc&) {
      return 0;
    }
  }

  void end(int, const BoundOperation&, std::uint64_t id) noexcept override {
    if (id != 0) cupti_.pop(layout::kOurIds, nullptr);
  }

 private:
  static inline std::mutex reading;        // taken before mutex_, and while a source reads a buffer
  static inline Source* active = nullptr;  // CUPTI's callbacks have no other way here

  static void ignore(void*, int, std::uint32_t, const void*) {}
  static void* as_pointer(void (*function)(void*, int, std::uint32_t, const void*)) {
    return reinterpret_cast<void*>(function);
  }

  static void request_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
    *size = *buffer == nullptr ? 0 : kBufferBytes;
    *records = 0;  // as many as fit
  }

  static void buffer_full(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
    {
      const std::lock_guard lock(reading);
      if (active != nullptr) active->read(context, stream, buffer, valid);
    }
    std::free(buffer);
  }

  std::string refusal(const char* function, int status) const {
    if (status == 0) return {};
    const char* text = nullptr;
    cupti_.result_string(status, &text);
    return fmt::format("{}: {} ({})", function, text == nullptr ? "unknown" : text, status);
  }

  std::string enable() {
    for (const int kind : kKinds)
      if (std::string reason = refusal("cuptiActivityEnable", cupti_.enable(kind)); !reason.empty())
        return reason;
    return {};
  }
  void disable() {
    for (const int kind : kKinds) cupti_.disable(kind);
  }

  void read(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t valid) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      for (void* record = nullptr; cupti_.next(buffer, valid, &record) == 0;) keep(record);
    } catch (const std::bad_alloc&) {
      ++lost_;
    }
    std::size_t lost = 0;
    if (cupti_.lost(context, stream, &lost) == 0) lost_ += lost;
  }

  void keep(const void* record) {
    const int kind = field<int>(record, 0);
    switch (kind) {
      case layout::kExternalId:
        if (field<int>(record, layout::kExternalKind) == layout::kOurIds)
          id_of_[field<std::uint32_t>(record, layout::kExternalCorrelation)] =
              field<std::uint64_t>(record, layout::kExternalValue);
        break;
      case layout::kRuntimeCall:
      case layout::kDriverCall:
        if (is_too_many(calls_.size())) break;
        calls_.push_back({field<std::uint64_t>(record, layout::kCallBegin),
                          field<std::uint64_t>(record, layout::kCallEnd),
                          field<std::uint32_t>(record, layout::kCallId),
                          field<std::uint32_t>(record, layout::kCallCorrelation),
                          kind == layout::kRuntimeCall});
        break;
      case layout::kKernel: {
        if (is_too_many(work_.size())) break;
        Work work = work_of(RecordKind::kernel, record, layout::kKernelAt);
        work.bytes = 0;
        work.blocks = 1;
        for (std::size_t i = 0; i < 3; ++i)
          work.blocks *= field<std::uint32_t>(record, layout::kKernelGrid + 4 * i);
        work.name = text_of(field<const char*>(record, layout::kKernelName));
        work_.push_back(work);
        break;
      }
      case layout::kMemcpy: {
        if (is_too_many(work_.size())) break;
        Work work = work_of(RecordKind::copy, record, layout::kMemcpyAt);
        work.name = recorder_.text(direction(field<std::uint8_t>(record, layout::kCopyDirection)));
        work_.push_back(work);
        break;
      }
      case layout::kMemset: {
        if (is_too_many(work_.size())) break;
        Work work = work_of(RecordKind::memset, record, layout::kMemsetAt);
        work.name = recorder_.text("memset");
        work_.push_back(work);
        break;
      }
      default:
        break;
    }
  }

  bool is_too_many(std::size_t records) {
    const bool too_many = records == Recorder::kMostRecords;
    lost_ += too_many ? 1 : 0;
    return too_many;
  }

  static Work work_of(RecordKind kind, const void* record, const layout::Work& at) {
    return {kind,
            field<std::uint64_t>(record, at.begin),
            field<std::uint64_t>(record, at.end),
            field<std::uint64_t>(record, at.bytes),
            0,
            field<std::uint32_t>(record, at.stream),
            field<std::uint32_t>(record, at.correlation),
            0};
  }

  static const char* direction(std::uint8_t kind) {
    return kind == 1 ? "copy to the device" : kind == 2 ? "copy to the host" : "copy";
  }

  /// CUPTI names a kernel by one and the same pointer.
  TextId text_of(const char* mangled) {
    const auto [entry, added] = names_.try_emplace(mangled, 0);
    if (added) entry->second = recorder_.text(kernel_name(mangled));
    return entry->second;
  }

  /// The operation whose calls have this correlation, or null.
  const Record* operation_of(std::uint32_t correlation) const {
    const auto id = id_of_.find(correlation);
    if (id == id_of_.end() || id->second == 0 || id->second > issued_.size()) return nullptr;
    return &issued_[id->second - 1];
  }

  void hand_over() {
    const std::lock_guard lock(mutex_);
    for (const Work& work : work_) {
      const Record* const operation = operation_of(work.correlation);
      Record record = operation == nullptr ? Record{} : *operation;
      if (operation == nullptr) record.lane = unknown_lane(work.stream);
      record.kind = work.kind;
      record.begin = work.begin;
      record.end = work.end;
      record.bytes = work.bytes;
      record.blocks = work.blocks;
      record.name = work.name;
      recorder_.add(record);
    }
    // A runtime call and the driver call within it have one correlation.
    std::unordered_set<std::uint32_t> by_runtime;
    for (const Call& call : calls_)
      if (call.runtime) by_runtime.insert(call.correlation);
    for (const Call& call : calls_) {
      const Record* const operation = operation_of(call.correlation);
      if (operation == nullptr || (!call.runtime && by_runtime.count(call.correlation) > 0))
        continue;
      Record record = *operation;
      record.kind = RecordKind::runtime;
      record.bytes = 0;
      record.begin = call.begin;
      record.end = call.end;
      record.lane = calls_lane();
      const char* name = nullptr;
      cupti_.call_name(call.runtime ? kRuntimeDomain : kDriverDomain, call.id, &name);
      record.name = recorder_.text(name == nullptr ? "call" : name);
      recorder_.add(record);
    }
    recorder_.drop(std::exchange(lost_, 0));
    work_.clear();
    calls_.clear();
    id_of_.clear();
    issued_.clear();
  }

  int calls_lane() {
    if (calls_lane_ < 0) calls_lane_ = recorder_.lane("calls that queue work");
    return calls_lane_;
  }
  int unknown_lane(std::uint32_t stream) {
    const auto [entry, added] = unknown_lanes_.try_emplace(stream, 0);
    if (added) entry->second = recorder_.lane(fmt::format("stream {}", stream));
    return entry->second;
  }

  const CuptiFunctions cupti_;
  Recorder& recorder_;
  const bool shapes_;
  void* subscriber_ = nullptr;
  std::atomic<bool> recording_{false};

  std::mutex mutex_;
  std::vector<Record> issued_;  // operations, by id - 1: names, stage, step and lane
  std::unordered_map<std::uint32_t, std::uint64_t> id_of_;  // by correlation
  std::vector<Work> work_;
  std::vector<Call> calls_;
  std::uint64_t lost_ = 0;
  std::unordered_map<const char*, TextId> names_;
  std::unordered_map<std::uint32_t, int> unknown_lanes_;
  int calls_lane_ = -1;
};

}  // namespace

CuptiLibrary load_cupti(int cuda_major) {
  const std::string file = fmt::format("libcupti.so.{}", cuda_major);
  std::vector<std::string> candidates{file};
  if (const char* named = std::getenv("TANDEM_CUPTI")) {
    candidates = {named};
  } else {
    const std::initializer_list<const char*> roots{std::getenv("CUDA_HOME"),
                                                   std::getenv("CUDA_PATH"), "/usr/local/cuda"};
    for (const char* root : roots)
      if (root != nullptr)
        for (const char* folder : {"extras/CUPTI/lib64", "lib64"})
          candidates.push_back(fmt::format("{}/{}/{}", root, folder, file));
  }
  void* library = nullptr;
  std::string reason;
  for (const std::string& candidate : candidates) {
    library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    if (reason.empty()) reason = fmt::format("it is not there: {}", dlerror());
  }
  if (library == nullptr) return {std::nullopt, reason};
  CuptiFunctions cupti;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
  };
  find(cupti.result_string, "cuptiGetResultString");
  find(cupti.subscribe, "cuptiSubscribe");
  find(cupti.unsubscribe, "cuptiUnsubscribe");
  find(cupti.callbacks, "cuptiActivityRegisterCallbacks");
  find(cupti.clock, "cuptiActivityRegisterTimestampCallback");
  find(cupti.enable, "cuptiActivityEnable");
  find(cupti.disable, "cuptiActivityDisable");
  find(cupti.flush, "cuptiActivityFlushAll");
  find(cupti.next, "cuptiActivityGetNextRecord");
  find(cupti.lost, "cuptiActivityGetNumDroppedRecords");
  find(cupti.push, "cuptiActivityPushExternalCorrelationId");
  find(cupti.pop, "cuptiActivityPopExternalCorrelationId");
  find(cupti.call_name, "cuptiGetCallbackName");
  if (!missing.empty()) return {std::nullopt, fmt::format("it has no function {}", missing)};
  return {cupti, {}};
}

CuptiSource make_cupti_source(const CuptiLibrary& library, Recorder& recorder, bool shapes) {
  if (!library.functions) return {nullptr, library.reason};
  auto source = std::make_unique<Source>(*library.functions, recorder, shapes);
  std::string reason = source->open();
  if (!reason.empty()) return {nullptr, reason};
  return {std::move(source), {}};
}

std::string kernel_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  if (status != 0) return mangled;
  std::string name = demangled.get();
  for (const std::string_view part :
       {std::string_view("(anonymous namespace)::"), std::string_view("tandem::cuda::")})
    for (std::size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, part.size());
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace tandem
