#include "orrery/recipes/shell_paths.h"

#include <filesystem>

namespace orrery::recipes {
namespace {

namespace fs = std::filesystem;

// Of a command's words those behind its options.
std::vector<std::string> Operands(const std::vector<std::string>& command) {
  std::vector<std::string> operands;
  bool options = true;
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (options && command[i] == "--") {
      options = false;
    } else if (!options || command[i].size() < 2 || command[i][0] != '-') {
      operands.push_back(command[i]);
    }
  }
  return operands;
}

std::string FolderPart(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::string PathFrom(std::string_view folder, std::string_view path) {
  std::string joined = (fs::path(folder) / fs::path(path)).lexically_normal().string();
  while (joined.size() > 1 && joined.ends_with('/')) joined.pop_back();
  return joined.empty() ? "." : joined;
}

std::optional<std::string> FolderAfter(const std::vector<std::string>& command,
                                       std::string_view folder) {
  const std::vector<std::string> operands = Operands(command);
  if (operands.empty() || operands.front() == "-") return std::nullopt;
  return PathFrom(folder, operands.front());
}

std::optional<std::string> PathOutput(const std::vector<std::vector<std::string>>& commands,
                                      std::string folder) {
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::vector<std::string>& command = commands[i];
    const bool last = i + 1 == commands.size();
    if (command.empty()) return std::nullopt;
    const std::string& name = command.front();
    if (name == "cd" && !last) {
      std::optional<std::string> to = FolderAfter(command, folder);
      if (!to) return std::nullopt;
      folder = *std::move(to);
      continue;
    }
    if (!last) return std::nullopt;
    if (name == "pwd") return folder;
    const std::vector<std::string> operands = Operands(command);
    if (operands.empty()) return std::nullopt;
    if (name == "dirname") return FolderPart(operands.front());
    if (name == "readlink" || name == "realpath") return PathFrom(folder, operands.front());
    if (name != "basename") return std::nullopt;
    std::string base = operands.front();
    while (base.size() > 1 && base.ends_with('/')) base.pop_back();
    base = base.substr(base.rfind('/') + 1);
    const bool cuts = operands.size() > 1 && base.ends_with(operands[1]) && base != operands[1];
    return cuts ? base.substr(0, base.size() - operands[1].size()) : base;
  }
  return std::nullopt;
}

}  // namespace orrery::recipes
