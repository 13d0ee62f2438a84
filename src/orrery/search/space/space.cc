#include "orrery/search/space/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/formats/csv.h"

namespace orrery::search {
namespace {

constexpr std::size_t kMostValues = 1'000'000;

constexpr std::string_view kBlank = " \t\r\n";

std::optional<std::int64_t> Whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// At commas outside brackets, braces and quotes.
Result<std::vector<std::string_view>> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.push_back(Trimmed(text.substr(begin, i - begin), kBlank));
      begin = i + 1;
    }
    if (depth < 0) break;
  }
  if (depth != 0 || quote != 0) {
    return InvalidInput("'{}': a bracket or quote is not closed", Printable(text, 80));
  }
  parts.push_back(Trimmed(text.substr(begin), kBlank));
  return parts;
}

// "a..b", "a..b:s", "a..b:*f"; none where the text is no range.
Result<bool> ExpandRange(std::string_view text, std::vector<std::string>* values) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return false;
  const auto first = Whole(text.substr(0, dots));
  if (!first) return false;  // "../file.yaml"
  std::string_view rest = text.substr(dots + 2);
  const std::size_t colon = rest.find(':');
  std::string_view step_text =
      colon == std::string_view::npos ? std::string_view("1") : rest.substr(colon + 1);
  rest = rest.substr(0, colon);
  const bool factor = step_text.starts_with('*');
  if (factor) step_text.remove_prefix(1);
  const auto last = Whole(rest), step = Whole(step_text);
  if (!last || !step || *last < *first || *step < (factor ? 2 : 1) || (factor && *first < 1)) {
    return InvalidInput(
        "'{}' is no range; write 1..8, 0..64:16 (every 16th) or 1..64:*2 (doubled each time)",
        Printable(text, 80));
  }
  for (std::int64_t v = *first; v <= *last;) {
    if (values->size() == kMostValues) {
      return InvalidInput("'{}' has more than {} values", Printable(text, 80), kMostValues);
    }
    values->push_back(fmt::format("{}", v));
    if (factor ? v > *last / *step : v > *last - *step) break;
    v = factor ? v * *step : v + *step;
  }
  return true;
}

bool Below(std::string_view key, std::string_view above) {
  return key.size() > above.size() && key.starts_with(above) && key[above.size()] == '.';
}

}  // namespace

Status Space::Add(Axis axis) {
  std::vector<std::string> others = Keys();
  for (const std::string& key : axis.keys) {
    for (const std::string& other : others) {
      if (key == other) return InvalidInput("{}: is varied twice; give its values once", key);
      if (Below(key, other) || Below(other, key)) {
        return InvalidInput("{}: {} is varied, too, and holds it; vary one of them",
                            Below(key, other) ? key : other, Below(key, other) ? other : key);
      }
    }
    others.push_back(key);
  }
  const std::uint64_t points = axis.points.size();
  if (points == 0) return InvalidInput("{}: no value", axis.keys.front());
  if (size_ > kMostPoints / points) {
    return InvalidInput("{}: the space has more than {} points; give fewer values",
                        axis.keys.front(), HumanCount(static_cast<std::int64_t>(kMostPoints)));
  }
  size_ *= points;
  axes_.push_back(std::move(axis));
  return {};
}

std::vector<std::string> Space::Keys() const {
  std::vector<std::string> keys;
  for (const Axis& axis : axes_) keys.insert(keys.end(), axis.keys.begin(), axis.keys.end());
  return keys;
}

std::vector<std::size_t> Space::Digits(std::uint64_t point) const {
  std::vector<std::size_t> digits(axes_.size());
  for (std::size_t a = axes_.size(); a-- > 0;) {
    digits[a] = static_cast<std::size_t>(point % axes_[a].points.size());
    point /= axes_[a].points.size();
  }
  return digits;
}

std::vector<std::string> Space::Values(std::uint64_t point) const {
  std::vector<std::string> values;
  const std::vector<std::size_t> digits = Digits(point);
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const std::vector<std::string>& at = axes_[a].points[digits[a]];
    values.insert(values.end(), at.begin(), at.end());
  }
  return values;
}

std::vector<std::string> Space::Assignments(std::uint64_t point) const {
  std::vector<std::string> assignments;
  const std::vector<std::size_t> digits = Digits(point);
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const Axis& axis = axes_[a];
    for (std::size_t k = 0; k < axis.keys.size(); ++k) {
      const std::string& value = axis.points[digits[a]][k];
      if (!value.empty()) assignments.push_back(fmt::format("{}={}", axis.keys[k], value));
    }
  }
  return assignments;
}

Result<std::vector<std::string>> ParseValues(std::string_view text) {
  ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string_view> parts, Split(text));
  std::vector<std::string> values;
  for (const std::string_view part : parts) {
    if (part.empty()) {
      return InvalidInput("'{}': a value is empty; write null for a key that is left out",
                          Printable(text, 80));
    }
    ORRERY_ASSIGN_OR_RETURN(const bool range, ExpandRange(part, &values));
    if (!range) values.emplace_back(part);
  }
  for (auto value = values.begin(); value != values.end(); ++value) {
    if (std::find(values.begin(), value, *value) != value) {
      return InvalidInput("'{}': the value {} stands twice", Printable(text, 80),
                          Printable(*value, 40));
    }
    if (values.size() > 10'000) break;  // ranges: quadratic above, and repetitions do no harm
  }
  return values;
}

Result<Axis> ParseVary(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return InvalidInput("'{}': write key.path=values, for example parallel.tp=1,2,4",
                        Printable(text, 80));
  }
  Result<std::vector<std::string>> values = ParseValues(text.substr(equals + 1));
  const std::string key(Trimmed(text.substr(0, equals), kBlank));
  if (!values.ok()) return std::move(values).TakeStatus().In(Printable(key));
  Axis axis{.keys = {key}, .points = {}};
  for (std::string& value : *values) axis.points.push_back({std::move(value)});
  return axis;
}

Result<Axis> Zip(std::span<const std::string> texts) {
  Axis zipped;
  for (const std::string& text : texts) {
    ORRERY_ASSIGN_OR_RETURN(Axis axis, ParseVary(text));
    if (zipped.keys.empty()) {
      zipped.points.resize(axis.points.size());
    } else if (axis.points.size() != zipped.points.size()) {
      return InvalidInput(
          "{} has {} values and {} has {}; keys that change together need as many each",
          zipped.keys.front(), zipped.points.size(), axis.keys.front(), axis.points.size());
    }
    zipped.keys.push_back(std::move(axis.keys.front()));
    for (std::size_t i = 0; i < axis.points.size(); ++i) {
      zipped.points[i].push_back(std::move(axis.points[i].front()));
    }
  }
  return zipped;
}

Result<Axis> ReadList(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const formats::CsvTable table, formats::CsvTable::Read(path));
  if (table.rows() == 0) {
    return InvalidInput("{}: no runs; below the header of keys, a row is a run", path);
  }
  Axis axis{.keys = table.header(), .points = {}};
  for (std::size_t row = 0; row < table.rows(); ++row) {
    std::vector<std::string> values;
    for (std::size_t c = 0; c < table.columns(); ++c) {
      values.emplace_back(Trimmed(table.cell(row, c), kBlank));
    }
    axis.points.push_back(std::move(values));
  }
  return axis;
}

}  // namespace orrery::search
