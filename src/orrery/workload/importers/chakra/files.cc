#include "orrery/workload/importers/chakra/files.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMostRanks = std::size_t{1} << 20;

// "PREFIX.7.et", or gzipped "PREFIX.7.et.gz".
struct FileName {
  std::string prefix;
  std::size_t rank = 0;
};
std::optional<FileName> Split(std::string name) {
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  if (!name.ends_with(".et")) return std::nullopt;
  name.resize(name.size() - 3);
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot + 1 == name.size()) return std::nullopt;
  FileName split{name.substr(0, dot), 0};
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + dot + 1, end, split.rank);
  if (error != std::errc() || at != end || split.rank >= kMostRanks) return std::nullopt;
  return split;
}

// Files of the folder by prefix and rank; of one prefix if one is asked for.
using ByPrefix = std::map<std::string, std::map<std::size_t, std::string>>;
Result<ByPrefix> List(const fs::path& folder, const std::string* prefix) {
  std::error_code error;
  ByPrefix found;
  const fs::path listed = folder.empty() ? fs::path(".") : folder;
  for (fs::directory_iterator it(listed, error), end; !error && it != end; it.increment(error)) {
    const std::optional<FileName> name = Split(it->path().filename().string());
    if (!name || (prefix != nullptr && name->prefix != *prefix)) continue;
    found[name->prefix][name->rank] = (folder / it->path().filename()).string();
  }
  if (error) {
    return InvalidInput("'{}': cannot be listed: {}", Printable(listed.string()), error.message());
  }
  return found;
}

Result<std::vector<std::string>> InOrder(const std::map<std::size_t, std::string>& ranks,
                                         const std::string& prefix) {
  std::vector<std::string> files;
  for (const auto& [rank, file] : ranks) {
    if (rank != files.size()) {
      return InvalidInput("'{}.{}.et' is missing: this trace has {} files, up to rank {}",
                          Printable(prefix), files.size(), ranks.size(), ranks.rbegin()->first);
    }
    files.push_back(file);
  }
  return files;
}

}  // namespace

Result<std::vector<std::string>> ChakraFiles(const std::vector<std::string>& paths) {
  if (paths.size() != 1) return paths;
  const fs::path path(paths.front());
  std::error_code error;
  if (fs::is_directory(path, error)) {
    ORRERY_ASSIGN_OR_RETURN(const ByPrefix found, List(path, nullptr));
    if (found.empty())
      return InvalidInput(
          "'{}' holds no trace: no PREFIX.RANK.et of Chakra, and no file that tells "
          "another format ('orrery list formats')",
          Printable(path.string()));
    if (found.size() > 1) {
      return InvalidInput("'{}' holds several traces, '{}' and '{}' among them: name one as '{}'",
                          Printable(path.string()), Printable(found.begin()->first),
                          Printable(std::next(found.begin())->first),
                          Printable((path / found.begin()->first).string()));
    }
    return InOrder(found.begin()->second, (path / found.begin()->first).string());
  }
  std::string prefix = path.filename().string();
  if (fs::exists(path, error)) {
    const std::optional<FileName> name = Split(prefix);
    if (!name) return paths;  // a single rank under a name of its own
    prefix = name->prefix;
  }
  ByPrefix found;
  const fs::path folder = path.parent_path();
  if (folder.empty() || fs::is_directory(folder, error)) {
    ORRERY_ASSIGN_OR_RETURN(found, List(folder, &prefix));
  }
  if (found.empty()) {
    const std::string shown = Printable(path.string());
    return InvalidInput("cannot read '{}': No such file or directory{}; check the path", shown,
                        path.has_extension() ? "" : fmt::format(", and no trace '{}.0.et'", shown));
  }
  return InOrder(found.begin()->second, (path.parent_path() / prefix).string());
}

std::string ChakraGroupsFile(const std::string& rank_file) {
  const fs::path path(rank_file);
  const std::optional<FileName> name = Split(path.filename().string());
  if (!name) return "";
  const fs::path groups = path.parent_path() / (name->prefix + ".groups.json");
  std::error_code error;
  return fs::is_regular_file(groups, error) ? groups.string() : "";
}

}  // namespace orrery::workload
