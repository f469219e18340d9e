// SPDX-License-Identifier: Apache-2.0
#include <tandem/engine/nvtx.hpp>

#if defined(TANDEM_HAS_NVTX) && !defined(NVTX_DISABLE)

#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <unordered_map>

namespace tandem::nvtx {
namespace detail {

std::atomic<bool> silent{false};

namespace {

/// What the tool was told. Its first use loads the tool; every call of NVTX comes after that, so
/// no thread sees the tool half loaded.
class Domain {
 public:
  Domain() : handle_(nvtxDomainCreateA("tandem")) {
    if (handle_ == nullptr) {
      silent.store(true, std::memory_order_relaxed);
      return;
    }
    nvtxDomainNameCategoryA(handle_, static_cast<std::uint32_t>(Category::stage), "stage");
    nvtxDomainNameCategoryA(handle_, static_cast<std::uint32_t>(Category::operation), "operation");
    nvtxDomainNameCategoryA(handle_, static_cast<std::uint32_t>(Category::capture), "capture");
  }

  /// Null if no tool listens.
  nvtxDomainHandle_t handle() const noexcept { return handle_; }

  nvtxEventAttributes_t attributes(Category category, const std::string& name, std::uint64_t step) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.category = static_cast<std::uint32_t>(category);
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = step;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = registered(name);
    return attributes;
  }

 private:
  nvtxStringHandle_t registered(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto [entry, added] = names_.try_emplace(name, nullptr);
    if (added) entry->second = nvtxDomainRegisterStringA(handle_, entry->first.c_str());
    return entry->second;
  }

  const nvtxDomainHandle_t handle_;
  std::mutex mutex_;
  std::unordered_map<std::string, nvtxStringHandle_t> names_;
};

/// Never destroyed: a range may end while the program's statics are being destroyed.
Domain& domain() {
  static Domain& domain = *new Domain;
  return domain;
}

}  // namespace

bool push(Category category, const std::string& name, std::uint64_t step) {
  if (!listening()) return false;
  const nvtxEventAttributes_t attributes = domain().attributes(category, name, step);
  nvtxDomainRangePushEx(domain().handle(), &attributes);
  return true;
}

void pop() noexcept { nvtxDomainRangePop(domain().handle()); }

std::uint64_t start(Category category, const std::string& name, std::uint64_t step) {
  if (!listening()) return 0;
  const nvtxEventAttributes_t attributes = domain().attributes(category, name, step);
  return nvtxDomainRangeStartEx(domain().handle(), &attributes);
}

void end(std::uint64_t range) noexcept { nvtxDomainRangeEnd(domain().handle(), range); }

}  // namespace detail

bool listening() noexcept { return detail::domain().handle() != nullptr; }

void name_thread(const std::string& name) noexcept {
  if (listening()) nvtxNameOsThreadA(static_cast<std::uint32_t>(syscall(SYS_gettid)), name.c_str());
}

}  // namespace tandem::nvtx

#else

namespace tandem::nvtx {

namespace detail {
std::atomic<bool> silent{true};
bool push(Category, const std::string&, std::uint64_t) { return false; }
void pop() noexcept {}
std::uint64_t start(Category, const std::string&, std::uint64_t) { return 0; }
void end(std::uint64_t) noexcept {}
}  // namespace detail

bool listening() noexcept { return false; }
void name_thread(const std::string&) noexcept {}

}  // namespace tandem::nvtx

#endif
