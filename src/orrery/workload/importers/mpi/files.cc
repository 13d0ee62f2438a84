#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "orrery/base/text.h"
#include "orrery/workload/importers/mpi/mpi.h"

namespace orrery::workload {
namespace {

// Where the last number of a file's name stands in a path.
struct FileNumber {
  std::size_t begin = 0, size = 0;
  std::int64_t value = -1;
};
FileNumber LastNumber(const std::string& path) {
  FileNumber number;
  std::size_t end = path.size();
  const std::size_t name = path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1;
  while (end > name && (path[end - 1] < '0' || path[end - 1] > '9')) --end;
  std::size_t begin = end;
  while (begin > name && path[begin - 1] >= '0' && path[begin - 1] <= '9') --begin;
  constexpr std::size_t kMostDigits = 9;
  if (begin == end || end - begin > kMostDigits) return number;
  std::from_chars(path.data() + begin, path.data() + end, number.value);
  number.begin = begin;
  number.size = end - begin;
  return number;
}

}  // namespace

Result<std::vector<std::string>> MpiFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> files = paths;
  std::error_code error;
  if (paths.size() == 1 && std::filesystem::is_directory(paths[0], error)) {
    files.clear();
    for (const auto& entry : std::filesystem::directory_iterator(paths[0], error)) {
      if (entry.is_regular_file(error)) files.push_back(entry.path().string());
    }
  } else if (paths.size() == 1) {
    const FileNumber number = LastNumber(paths[0]);
    if (number.value == 0) {
      files.clear();
      for (std::size_t rank = 0;; ++rank) {
        std::string path = paths[0];
        path.replace(number.begin, number.size, fmt::format("{:0{}}", rank, number.size));
        if (!std::filesystem::is_regular_file(path, error)) break;
        files.push_back(std::move(path));
      }
    }
  }
  if (files.size() < 2) return files;
  std::ranges::sort(files, {}, [](const std::string& f) { return LastNumber(f).value; });
  for (std::size_t rank = 0; rank < files.size(); ++rank) {
    if (LastNumber(files[rank]).value == static_cast<std::int64_t>(rank)) continue;
    return InvalidInput(
        "'{}': the files of ranks are numbered from 0 at the end of their names; the one of rank "
        "{} is missing or there twice",
        Printable(files[rank]), rank);
  }
  return files;
}

}  // namespace orrery::workload
