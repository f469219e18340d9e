// SPDX-License-Identifier: Apache-2.0
// `tandem report`: results as one page.
#include <fmt/format.h>

#include <tandem/engine/error.hpp>

#include "common.hpp"
#include "report_page.hpp"

namespace tandem::program {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string out;
};

void run(const ReportOptions& options) {
  std::vector<NamedFile> files;
  for (std::size_t i = 0; i < options.files.size(); ++i)
    files.push_back({fmt::format("result {}", i + 1), options.files[i]});
  check_distinct(files);
  if (options.out != "-") check_replaceable("--out", options.out);
  std::vector<Result> results;
  for (const std::string& file : options.files) results.push_back(read_result(file));
  write_text(options.out, report_page(results));
  if (options.out == "-") return;
  fmt::print("{}: {}\n", printable(options.out),
             count_of(static_cast<std::int64_t>(results.size()), "result"));
}

}  // namespace

void add_report(CLI::App& root, Command& selected) {
  CLI::App* app = root.add_subcommand(
      "report", "One page of results: advice, tables and charts, in a file that needs no other");
  auto values = std::make_shared<ReportOptions>();
  auto options = std::make_shared<Options>(*app);
  app->add_option("results.json", values->files,
                  "what bench, find-batch and profile wrote with --json")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("");
  options->text("--out", values->out, "FILE.html", "the page; -: standard output")->required();
  app->footer(
      "Exit codes: 0 written, 2 usage, 3 a file is no such result or the page cannot be written.");
  app->callback([&selected, values, options] { selected = [values, options] { run(*values); }; });
}

}  // namespace tandem::program
