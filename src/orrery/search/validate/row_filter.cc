#include "orrery/search/validate/row_filter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/base/units.h"

namespace orrery::search {
namespace {

using formats::Section;

enum class How : std::uint8_t { kIs, kBegins, kHolds, kLacks, kSince, kBefore };

// A condition on a column: "a|b", one of which it is, begins with, or holds.
struct Kind {
  std::string_view key, column;
  How how;
};
constexpr std::array<Kind, 17> kKinds = {{
    {"family", "framework_family", How::kIs},
    {"framework", "framework", How::kHolds},
    {"begins", "framework", How::kBegins},
    {"versions", "framework_version", How::kBegins},  // but for VersionOf
    {"container", "framework_version", How::kBegins},
    {"since", "measured_date", How::kSince},
    {"before", "measured_date", How::kBefore},
    {"models", "model", How::kBegins},
    {"kinds", "layer_kind", How::kIs},
    {"layers", "layers", How::kIs},
    {"gpus", "gpu", How::kBegins},
    {"counts", "gpus", How::kIs},
    {"precisions", "compute_dtype", How::kBegins},
    {"written_precision", "precision", How::kBegins},
    {"tasks", "task", How::kBegins},
    {"extra", "config_extra", How::kHolds},
    {"without", "config_extra", How::kLacks},
}};
// And on what follows from several.
constexpr std::string_view kFrameworks = "frameworks", kScripts = "scripts", kCase = "case";

std::array<Option, kKinds.size() + 6> MakeKeys() {
  std::array<Option, kKinds.size() + 6> keys{};
  for (std::size_t i = 0; i < kKinds.size(); ++i) keys[i].name = kKinds[i].key;
  std::size_t next = kKinds.size();
  for (const std::string_view key : {kFrameworks, kScripts, kCase}) keys[next++].name = key;
  keys[next++].name = "from";  // YY.MM, releases or dates
  keys[next++].name = "to";
  keys[next] = {.name = "undated", .type = OptionType::kBool, .fallback = "false"};
  return keys;
}

constexpr int kEver = 9999;

bool StandsIn(std::string_view text, const std::string& words) {
  return std::ranges::any_of(SplitBars(words), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}

// The name of a test case, "case=NAME+…".
std::string_view CaseOf(const Configuration& row) {
  constexpr std::string_view kNames = "case=";
  const std::string_view extra = row.text("config_extra");
  const std::size_t at = extra.find(kNames);
  if (at == std::string_view::npos) return {};
  const std::string_view name = extra.substr(at + kNames.size());
  return name.substr(0, name.find('+'));
}

// A container's name may be left from an older submission: a release of ngcYY.MM two calendar years
// before the measurement says nothing about what ran.
std::string_view VersionOf(const Configuration& row) {
  const std::string_view version = row.text("framework_version");
  const std::string_view date = row.text("measured_date");
  if (!version.starts_with("ngc") || version.size() < 5 || !date.starts_with("20")) return version;
  const auto year = [](std::string_view digits) { return digits[0] * 10 + digits[1]; };
  return date.size() >= 4 && year(date.substr(2)) - year(version.substr(3)) >= 2 ? "" : version;
}

bool Holds(How how, std::string_view cell, const std::string& words) {
  switch (how) {
    case How::kIs:
      return IsOneOf(cell, words);
    case How::kBegins:
      return BeginsWithOneOf(cell, words);
    case How::kHolds:
      return StandsIn(cell, words);
    case How::kLacks:
      return !StandsIn(cell, words);
    case How::kSince:  // a date may be of the month alone
      return !cell.empty() && cell >= std::string_view(words).substr(0, cell.size());
    case How::kBefore:
      return !cell.empty() && cell < std::string_view(words).substr(0, cell.size());
  }
  return false;
}

}  // namespace

int Month(std::string_view text) {
  if (text.size() < 5) return 0;
  const auto year = ParseInteger(text.substr(0, 2)), month = ParseInteger(text.substr(3, 2));
  return year.ok() && month.ok() ? static_cast<int>(*year * 100 + *month) : 0;
}

const OptionTable& RowFilter::Keys() {
  static const auto keys = MakeKeys();
  static const OptionTable table{.path = "", .doc = "", .options = keys};
  return table;
}

Result<RowFilter> RowFilter::Read(const Section& keys) {
  RowFilter filter;
  for (const Option& option : Keys().options) {
    const bool date = option.name == "from" || option.name == "to" || option.name == "undated";
    if (!date && keys.Has(option.name)) {
      filter.conditions_.push_back({option.name, keys.Text(option.name)});
    }
  }
  filter.to_ = kEver;
  for (const auto& [key, month] :
       {std::pair{"from", &filter.from_}, std::pair{"to", &filter.to_}}) {
    if (!keys.Has(key)) continue;
    *month = Month(keys.Text(key));
    if (*month > 0) continue;
    return InvalidInput("'{}' is no month; write YY.MM", Printable(keys.Text(key), 20))
        .In(keys.Where(key));
  }
  if (keys.Bool("undated")) filter.from_ = filter.to_ = 0;
  return filter;
}

bool RowFilter::Fits(const Configuration& row, std::string_view framework,
                     const Origin& origin) const {
  if (origin.month < from_ || to_ < origin.month) return false;
  return std::ranges::all_of(conditions_, [&](const Condition& condition) {
    const auto& [key, words] = condition;
    if (key == kFrameworks) return BeginsWithOneOf(framework, words);
    if (key == kScripts) return words == "any" || words == origin.scripts;
    if (key == kCase) return StandsIn(CaseOf(row), words);
    const Kind& kind = *std::ranges::find(kKinds, key, &Kind::key);
    return Holds(kind.how, key == "versions" ? VersionOf(row) : row.text(kind.column), words);
  });
}

}  // namespace orrery::search
