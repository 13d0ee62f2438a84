#include "arguments.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::app {
namespace {

bool SameFile(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(a, error) && fs::exists(b, error)) {
    return fs::is_regular_file(a, error) && fs::equivalent(a, b, error);
  }
  const fs::path whole_a = fs::weakly_canonical(fs::absolute(a, error), error);
  const fs::path whole_b = fs::weakly_canonical(fs::absolute(b, error), error);
  return !whole_a.empty() && whole_a == whole_b;
}

Status CheckWritable(const std::string& path) {
  std::error_code error;
  if (path.empty() || path == "-" || std::filesystem::is_other(path, error)) return {};
  return FileWriter::Create(path).status();
}

Status CheckPair(const NamedFile& output, const NamedFile& other) {
  if (output.path.empty() || other.path.empty() || output.path == "-" || other.path == "-") {
    return {};
  }
  if (!SameFile(output.path, other.path)) return {};
  return InvalidInput("{} {}: is the same file as {} {}; name another", output.option,
                      Printable(output.path), other.option, Printable(other.path));
}

}  // namespace

Status CheckFiles(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    if (output.path == "-" && output.option != "--json") {
      return InvalidInput("{} -: only --json goes to stdout; name a file (./- is one)",
                          output.option);
    }
    for (const NamedFile& input : inputs) {
      std::error_code error;  // a preset's name is no file
      if (!std::filesystem::exists(input.path, error)) continue;
      ORRERY_RETURN_IF_ERROR(CheckPair(output, input));
    }
    for (std::size_t k = 0; k < i; ++k) ORRERY_RETURN_IF_ERROR(CheckPair(output, outputs[k]));
  }
  for (const NamedFile& output : outputs) ORRERY_RETURN_IF_ERROR(CheckWritable(output.path));
  return {};
}

Result<std::int64_t> WholeNumber(std::string_view option, const std::string& text,
                                 std::int64_t least, std::int64_t most) {
  Result<std::int64_t> value = ParseInteger(text);
  if (!value.ok()) {
    return InvalidInput("{}: {}; give {} to {}", option, value.status().message(), least,
                        HumanCount(most));
  }
  if (*value < least || *value > most) {
    return InvalidInput("{} {}: give {} to {}", option, *value, least, HumanCount(most));
  }
  return value;
}

Result<std::int64_t> Quantity(std::string_view option, const std::string& text, Dimension dimension,
                              std::string_view unit) {
  Result<std::int64_t> value = ParseWhole(text, dimension, unit);
  if (!value.ok()) return std::move(value).TakeStatus().In(std::string(option));
  return value;
}

CLI::Validator WholeIn(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    const Result<std::int64_t> value = ParseInteger(text);
    const std::string range = fmt::format("give {} to {}", least, HumanCount(most));
    if (!value.ok()) return fmt::format("{}; {}", value.status().message(), range);
    if (*value < least || *value > most) return fmt::format("{}, not {}", range, *value);
    text = std::to_string(*value);
    return "";
  };
  return {check, ""};
}

CLI::Validator OneOf(std::string_view kind, std::vector<std::string_view> names) {
  const auto check = [kind, names = std::move(names)](std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return "";
    return UnknownName(kind, Printable(text), names);
  };
  return {check, ""};
}

}  // namespace orrery::app
