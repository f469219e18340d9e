// SPDX-License-Identifier: Apache-2.0
// `tandem info`: what this program was built with, what it finds here, and what is missing.
#include <fmt/format.h>

#include <tandem/engine/nvml.hpp>

#include "common.hpp"
#if defined(TANDEM_HAS_CUDA)
#include <tandem/engine/cuda_info.hpp>
#endif

namespace tandem::program {
namespace {

struct Missing {
  std::string what, cost;
};

/// The CUDA libraries and devices; null where the CUDA half is not built in.
Json cuda_info(std::vector<Missing>& missing) {
#if defined(TANDEM_HAS_CUDA)
  const CudaInfo cuda = query_cuda();
  Json json;
  json["runtime"] = cuda.runtime;
  json["driver"] = cuda.driver.empty() ? Json(nullptr) : Json(cuda.driver);
  json["cudnn"] = cuda.cudnn;
  json["cublaslt"] = cuda.cublaslt;
  json["devices"] = Json::array();
  for (const CudaDevice& device : cuda.devices)
    json["devices"].push_back(
        {{"name", device.name},
         {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
         {"multiprocessors", device.multiprocessors},
         {"memory_bytes", device.memory_bytes},
         {"pci_bus_id", device.pci_bus_id},
         {"uuid", device.uuid}});
  const std::string on_host = "; everything runs on the processor, in fp32";
  if (!cuda.reason.empty()) missing.push_back({"CUDA device", cuda.reason + on_host});
  if (const NvmlLibrary nvml = load_nvml(); !nvml.functions)
    missing.push_back(
        {"GPU readings", nvml.reason + "; no clocks and no nvml_util_pct in results"});
  return json;
#else
  missing.push_back({"CUDA backend", std::string("not built in: ") + TANDEM_CUDA_REASON +
                                         "; everything runs on the processor, in fp32"});
  return nullptr;
#endif
}

void run(const std::string& json_path) {
  std::vector<Missing> missing;
  Json json;
  json["schema"] = 1;
  json["environment"] = environment();
  json["build"] = TANDEM_BUILD_TYPE;
  json["backends"] = {"host"};
  json["cuda"] = cuda_info(missing);
  if (!json["cuda"].is_null()) json["backends"].push_back("cuda");
  // The most streams any command uses: one a stage of the segmenter, one for its updates.
  json["warnings"] = cuda_warnings(4);
  json["missing"] = Json::array();
  for (const Missing& item : missing)
    json["missing"].push_back({{"what", item.what}, {"cost", item.cost}});
  write_json(json_path, json);
  if (json_path == "-") return;

  const Json& here = json["environment"];
  fmt::print("tandem     {} ({}), commit {}\n", here["version"].get<std::string>(),
             json["build"].get<std::string>(),
             here["commit"].is_null() ? "unknown" : here["commit"].get<std::string>());
  fmt::print("compiler   {}\n", here["compiler"].get<std::string>());
  fmt::print("system     {}\n", here["os"].get<std::string>());
  fmt::print("processor  {}, {}\n", here["cpu"].get<std::string>(),
             count_of(here["cores"].get<std::int64_t>(), "core"));
  fmt::print("OpenBLAS   {}, one thread\n", here["openblas"].get<std::string>());
  fmt::print("backends   {}\n", json["cuda"].is_null() ? "host" : "host, cuda");
  if (const Json& cuda = json["cuda"]; !cuda.is_null()) {
    fmt::print("CUDA       runtime {}, driver {}, cuDNN {}, cuBLASLt {}\n",
               cuda["runtime"].get<std::string>(),
               cuda["driver"].is_null() ? "none" : cuda["driver"].get<std::string>(),
               cuda["cudnn"].get<std::string>(), cuda["cublaslt"].get<std::string>());
    for (std::size_t i = 0; i < cuda["devices"].size(); ++i) {
      const Json& device = cuda["devices"][i];
      fmt::print("cuda:{}     {}, compute capability {}, {} multiprocessors, {:.1f} GiB\n", i,
                 device["name"].get<std::string>(), device["compute_capability"].get<std::string>(),
                 device["multiprocessors"].get<int>(),
                 device["memory_bytes"].get<double>() / (1 << 30));
    }
  }
  for (const auto& warning : json["warnings"])
    fmt::print("warning    {}\n", warning.get<std::string>());
  for (const Missing& item : missing) fmt::print("missing    {}: {}\n", item.what, item.cost);
}

}  // namespace

void add_info(CLI::App& root, Command& selected) {
  auto json_path = std::make_shared<std::string>();
  CLI::App* app = root.add_subcommand("info", "Build, libraries, devices, and what is missing");
  auto options = std::make_shared<Options>(*app);
  options->text("--json", *json_path, "FILE|-", "write the same as JSON");
  app->callback([&selected, options, json_path] { selected = [json_path] { run(*json_path); }; });
}

}  // namespace tandem::program
