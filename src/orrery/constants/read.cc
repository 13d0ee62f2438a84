#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/constants/constants.h"

namespace orrery::constants {
namespace {

Status ReadLine(std::string_view line, Set* set) {
  const std::size_t comma = line.find(',');
  if (comma == std::string_view::npos) return InvalidInput("a line is name,value");
  const std::string_view name = line.substr(0, comma), text = line.substr(comma + 1);
  const std::size_t id = Find(name);
  if (id == kCount) {
    std::vector<std::string_view> names;
    for (const Definition& d : Definitions()) names.push_back(d.name);
    return InvalidInput("{}", UnknownName("constant", Printable(name, 40), names));
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const Definition& d = Definitions()[id];
  if (error != std::errc() || end != text.data() + text.size()) {
    return InvalidInput("{} = {}: give a number", name, Printable(text, 40));
  }
  if (!(value >= d.low && value <= d.high)) {
    return InvalidInput("{} = {}: outside {} to {} {}", name, value, d.low, d.high, d.unit);
  }
  set->set(id, value);
  return {};
}

}  // namespace

Result<Set> Read(const std::string& path) {
  if (path == "prior") return Set();
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 1 << 20));
  Set set = Set::Fitted();
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  std::size_t number = 0;
  std::set<std::string_view> names;
  for (std::size_t at = text.starts_with(kMark) ? kMark.size() : 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++number;
    if (line.empty() || line == "name,value") continue;
    Status status = ReadLine(line, &set);
    if (!status.ok()) return std::move(status).In(fmt::format("{}:{}", path, number));
    const std::string_view name = line.substr(0, line.find(','));
    if (!names.insert(name).second) {
      return InvalidInput("{}:{}: {} stands there twice; keep one", path, number, name);
    }
  }
  if (names.empty()) {
    return InvalidInput("{}: no constant; write lines of name,value, or 'prior' for no file", path);
  }
  return set;
}

}  // namespace orrery::constants
