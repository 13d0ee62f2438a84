// Gives every file of a corpus to its target: what was found once stays found. Usage: PROGRAM
// CORPUS
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "orrery/base/file.h"
#include "tests/fuzz/targets.h"

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc != 2) {
    fmt::print("usage: {} CORPUS\n", argv[0]);
    return 2;
  }
  std::size_t inputs = 0, empty = 0;
  for (const orrery::fuzz::Target& target : orrery::fuzz::Targets()) {
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(fs::path(argv[1]) / target.name, error)) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) {
      fmt::print("{}: no input\n", target.name);
      ++empty;
    }
    for (const fs::path& file : files) {
      const orrery::Result<std::string> bytes = orrery::ReadFile(file.string(), 1 << 24);
      if (!bytes.ok()) {
        fmt::print("{}\n", bytes.status().message());
        ++empty;
        continue;
      }
      target.run(*bytes);  // ends the program if it must
      ++inputs;
    }
  }
  fmt::print("{} inputs, {} targets without\n", inputs, empty);
  return empty == 0 && inputs > 0 ? 0 : 1;
}
