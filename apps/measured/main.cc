// orrery-measured: builds the SQLite table of measured kernels from the CSV files under
// data/measured. The build runs it; so can a user who measured a GPU of their own:
//   orrery-measured --out build/release/measured.sqlite data/measured/*/*.csv
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/compute/measured_table.h"

int main(int argc, char** argv) {
  CLI::App app("Builds the SQLite table of measured kernels from CSV files.", "orrery-measured");
  std::string out;
  std::vector<std::string> files;
  app.add_option("--out", out, "SQLite file to write")->required();
  app.add_option("CSV", files, "Files of data/measured/<gpu>/")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "orrery-measured: {}\n", orrery::Printable(error.what(), 400));
    return 2;
  }
  const auto report = orrery::compute::BuildDatabase(std::move(files), out);
  if (!report.ok()) {
    fmt::print(stderr, "orrery-measured: {}\n", report.status().message());
    return report.status().code() == orrery::Code::kInvalidInput ? 2 : 3;
  }
  fmt::print("{}: {} rows of {} files, {} files of other tables skipped\n", orrery::Printable(out),
             orrery::HumanCount(report->rows), report->files, report->skipped);
  return 0;
}
