// SPDX-License-Identifier: Apache-2.0
// A tool that listens to NVTX, as a shared library: NVTX loads it into the program where
// NVTX_INJECTION64_PATH names it. It writes each call as a line to the file that TANDEM_NVTX_RECORD
// names; nvtx_recording.hpp says what is in a line and reads it.
#define NVTX_NO_IMPL  // the types only: this side provides the functions
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

struct Domain {
  std::string name;
  std::map<std::uint32_t, std::string> categories;
};

// Never destroyed: a thread may still call while the program ends.
std::mutex& mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::FILE* file = nullptr;

long this_thread() { return syscall(SYS_gettid); }

/// Libraries that the program uses may have names of any kind: they stay one field of one line.
std::string field(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

/// The caller holds the mutex.
void write(const char* event, long thread, const std::string& domain, const std::string& category,
           std::uint64_t range, const std::string& step, const std::string& name) {
  std::fprintf(file, "%s\t%ld\t%s\t%s\t%llu\t%s\t%s\n", event, thread, field(domain).c_str(),
               field(category).c_str(), static_cast<unsigned long long>(range), step.c_str(),
               field(name).c_str());
  std::fflush(file);
}

// Handles are addresses of what they stand for.
Domain& domain_of(nvtxDomainHandle_t handle) {
  static Domain& global = *new Domain{"(global)", {}};
  return handle == nullptr ? global : *reinterpret_cast<Domain*>(handle);
}

nvtxDomainHandle_t create_domain(const char* name) {
  const std::lock_guard lock(mutex());
  write("domain", this_thread(), name, "", 0, "", name);
  return reinterpret_cast<nvtxDomainHandle_t>(new Domain{name, {}});
}

void name_category(nvtxDomainHandle_t domain, std::uint32_t category, const char* name) {
  const std::lock_guard lock(mutex());
  domain_of(domain).categories[category] = name;
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char* string) {
  const std::lock_guard lock(mutex());
  write("string", this_thread(), domain_of(domain).name, "", 0, "", string);
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(string));
}

/// A range that opens, pushed or started.
void write_opening(const char* event, nvtxDomainHandle_t handle, std::uint64_t range,
                   const nvtxEventAttributes_t* attributes) {
  Domain& domain = domain_of(handle);
  const auto category = domain.categories.find(attributes->category);
  const std::string name =
      attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED
          ? *reinterpret_cast<const std::string*>(attributes->message.registered)
          : "(not registered)";
  const bool has_step = attributes->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  const std::string step = has_step ? std::to_string(attributes->payload.ullValue) : "(none)";
  write(event, this_thread(), domain.name,
        category == domain.categories.end() ? "(unnamed)" : category->second, range, step, name);
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const std::lock_guard lock(mutex());
  write_opening("push", domain, 0, attributes);
  return 0;
}

int pop(nvtxDomainHandle_t domain) {
  const std::lock_guard lock(mutex());
  write("pop", this_thread(), domain_of(domain).name, "", 0, "", "");
  return 0;
}

nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  static nvtxRangeId_t last = 0;
  const std::lock_guard lock(mutex());
  write_opening("start", domain, ++last, attributes);
  return last;
}

void end(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  const std::lock_guard lock(mutex());
  write("end", this_thread(), domain_of(domain).name, "", range, "", "");
}

void name_thread(std::uint32_t thread, const char* name) {
  const std::lock_guard lock(mutex());
  write("thread", static_cast<long>(thread), "", "", 0, "", name);
}

void name_stream(nvtx_cudaStream_t, const char* name) {
  const std::lock_guard lock(mutex());
  write("stream", this_thread(), "", "", 0, "", name);
}

/// Ranges outside of any domain, which Tandem never opens.
int push_global(const nvtxEventAttributes_t* attributes) { return push(nullptr, attributes); }
int pop_global() { return pop(nullptr); }

template <class Function>
void set(NvtxFunctionTable table, int id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  // Called once for the program and once for each shared library that uses NVTX itself.
  const std::lock_guard lock(mutex());
  if (file == nullptr) {
    const char* path = std::getenv("TANDEM_NVTX_RECORD");
    if (path == nullptr || (file = std::fopen(path, "w")) == nullptr) return 0;
  }

  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  const auto table_of = [&](NvtxCallbackModule module, unsigned int size) -> NvtxFunctionTable {
    NvtxFunctionTable table = nullptr;
    unsigned int entries = 0;
    const int good = callbacks->GetModuleFunctionTable(module, &table, &entries);
    return good != 0 && entries >= size ? table : nullptr;
  };
  const NvtxFunctionTable core = table_of(NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_SIZE);
  const NvtxFunctionTable core2 = table_of(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_SIZE);
  const NvtxFunctionTable cuda = table_of(NVTX_CB_MODULE_CUDART, NVTX_CBID_CUDART_SIZE);
  if (core == nullptr || core2 == nullptr || cuda == nullptr) return 0;

  set(core, NVTX_CBID_CORE_NameOsThreadA, name_thread);
  set(core, NVTX_CBID_CORE_RangePushEx, push_global);
  set(core, NVTX_CBID_CORE_RangePop, pop_global);
  set(core2, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  set(core2, NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
  set(core2, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  set(core2, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(core2, NVTX_CBID_CORE2_DomainRangePop, pop);
  set(core2, NVTX_CBID_CORE2_DomainRangeStartEx, start);
  set(core2, NVTX_CBID_CORE2_DomainRangeEnd, end);
  set(cuda, NVTX_CBID_CUDART_NameCudaStreamA, name_stream);
  return 1;
}
