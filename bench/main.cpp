// SPDX-License-Identifier: Apache-2.0
// The program `tandem`. Results go to standard output, everything else to standard error; the exit
// code is the value of ErrorCode.
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>
#include <new>
#include <system_error>
#include <tandem/engine/error.hpp>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "common.hpp"
#include "files.hpp"
#include "progress.hpp"

namespace tandem::program {
namespace {

constexpr const char* kNoOutput = "standard output cannot be written";

int report(ErrorCode code, std::string message, const std::string& hint = {}) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  say(fmt::format("tandem: {}\n", message));
  if (!hint.empty()) say(fmt::format("  hint: {}\n", hint));
  return static_cast<int>(code);
}

[[noreturn]] void refuse_no_command(const CLI::App& root) {
  const CLI::App& command = chosen_command(root);
  const bool top = command.get_parent() == nullptr;
  std::string names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    if (sub->get_group() == "Subcommands") names += (names.empty() ? "" : ", ") + sub->get_name();
  throw Error(
      ErrorCode::usage,
      fmt::format("no {}; allowed: {}",
                  top ? "command" : fmt::format("workload for '{}'", command.get_name()), names),
      "--help lists the options");
}

/// Ends the process without what it does at its exit: there OpenBLAS waits for a thread of its own,
/// which, where memory cannot be had, tries to get some for ever.
[[noreturn]] void end_without_memory(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(code);
}

/// What was printed has arrived, or is an error.
void end_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0) throw Error(ErrorCode::data, kNoOutput);
}

int run(int argc, char** argv) {
  CLI::App app("Trains networks cut into stages, each stage on its own stream.", "tandem");
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  app.set_help_flag("--help", "Show this text");
  Command selected;
  add_info(app, selected);
  add_train(app, selected);
  add_bench(app, selected);
  add_predict(app, selected);
  add_eval(app, selected);
  add_augment(app, selected);
  add_plan(app, selected);
  add_tune(app, selected);
  add_find_batch(app, selected);
  add_profile(app, selected);
  add_report(app, selected);
  add_compare(app, selected);

  try {
    std::vector<std::string> arguments = with_config_file({argv + 1, argv + argc});
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them last first
    app.parse(std::move(arguments));
  } catch (const CLI::ExtrasError&) {
    refuse_unknown(app);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text =
        error.what();  // "--steps: 1 required ... missing", or another sentence
    const std::size_t colon = text.find(':');
    return report(ErrorCode::usage,
                  colon == std::string::npos ? text : text.substr(0, colon) + " needs a value");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return report(ErrorCode::usage, error.what());
    app.exit(error, std::cout);  // the text of --help, --version
    end_output();
    return 0;
  }
  if (!selected) refuse_no_command(app);
  check_files(chosen_command(app));
  selected();
  end_output();
  return 0;
}

}  // namespace
}  // namespace tandem::program

int main(int argc, char** argv) {
  using namespace tandem;
  // The stages are the parallelism; a GEMM that spreads over all cores would blur what overlapping
  // gains. A process-wide setting, so it is made here and not in the library.
  openblas_set_num_threads(1);
  // A file that grows beyond what is allowed is an error of the write, which removes what there is
  // of it, and not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
#if defined(__GLIBC__)
  // Benchmarks take and give back the bytes of whole networks again and again. Memory that goes
  // back to the system each time has to be cleared by it each time, which takes longer than the
  // rows.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
  try {
    return program::run(argc, argv);
  } catch (const Error& error) {
    const int code = program::report(error.code(), error.what(), error.hint());
    if (error.code() == ErrorCode::out_of_memory) program::end_without_memory(code);
    return code;
  } catch (const std::bad_alloc&) {
    program::end_without_memory(program::report(ErrorCode::out_of_memory, "not enough memory"));
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return program::report(ErrorCode::data, program::kNoOutput);
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
      program::end_without_memory(program::report(
          ErrorCode::out_of_memory, fmt::format("a thread could not be started: {}", error.what()),
          "memory or the number of threads is limited (ulimit -v, ulimit -u)"));
    return program::report(ErrorCode::run_failed, error.what());
  }
}
